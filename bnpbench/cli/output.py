"""Where a command's result goes."""

from __future__ import annotations

from contextlib import suppress
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
    if output.is_dir():  # as "", "." and "/" are
        raise BnpbenchError(f"--output {output}: this is a folder; name a file in it")
    temporary = output.with_name(f".{output.name}.tmp")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
        temporary.replace(output)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise BnpbenchError(f"--output {output}: cannot be written ({error.strerror})") from error


def make_folder(folder: Path, option: str) -> None:
    """A folder that a command writes files to.

    Raises:
        BnpbenchError: there is none and none can be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BnpbenchError(
            f"{option} {folder}: no folder can be made here ({error.strerror}); name another"
        ) from error
