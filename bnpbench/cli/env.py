"""``bnpbench env``: what would be recorded about this machine."""

from __future__ import annotations

from typing import Any


def env() -> int:
    """Print what would be recorded about this machine."""
    from bnpbench.measure.environment import describe

    for line in _lines(describe()):
        print(line)
    return 0


def _lines(table: dict[str, Any], indent: str = "") -> list[str]:
    lines = []
    for name, value in table.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {'-' if value is None else value}")
    return lines
