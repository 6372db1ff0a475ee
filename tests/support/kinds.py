"""Things by their kind, as a suite names them."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from bnpbench.suite.settings import SETTINGS


def made(setting: str, value: Any) -> Any:
    """What stands for ``value`` in a setting: a kind or a table of options."""
    return TypeAdapter(SETTINGS[setting]).validate_python(value)
