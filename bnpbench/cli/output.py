"""Where a command's result goes."""

from __future__ import annotations

from pathlib import Path

from bnpbench.errors import BnpbenchError


def write(text: str, output: Path | None) -> None:
    """To stdout, or to a file that appears whole.

    Raises:
        BnpbenchError: the file cannot be written.
    """
    if output is None:
        print(text)
        return
    temporary = output.with_name(f".{output.name}.tmp")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(output)
    except OSError as error:
        raise BnpbenchError(f"--output {output}: cannot be written ({error.strerror})") from error
