"""The options that commands share, the paths that they take, and where their results go."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnpbench.cache import expanded
from bnpbench.errors import BnpbenchError
from bnpbench.streams import columns, tell
from bnpbench.text import fitted, plain, some

if TYPE_CHECKING:
    from bnpbench.results import Results


Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Give every cell this setting, whatever the suite says."),
]
Network = Annotated[
    str | None,
    typer.Option(
        metavar="PACKAGE.MODULE:FACTORY",
        help="A function that makes a network instead of the suite's: native against bnp+native.",
    ),
]
AllowPlugins = Annotated[bool, typer.Option("--allow-plugins", help="Run the Python files that a suite names.")]

WIDE = 10_000
"""Columns of what is no terminal: no line is folded."""


def from_home(value: Path | list[Path] | None) -> Path | list[Path] | None:
    """An option's path, or list of them, with ``~`` expanded: a shell leaves it in ``--out=~/results``."""
    if isinstance(value, Path):
        return expanded(value)
    return value if value is None else [expanded(path) for path in value]


def terminal() -> tuple[int, bool] | None:
    """Columns of the terminal that stdout goes to, and whether it may be sent colours; None where it goes elsewhere."""
    width = columns(sys.__stdout__)  # while a command runs its result is kept back
    if width is None:
        return None
    return width, "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def show(text: str) -> None:
    """Print a result that is no table; on a terminal no line is wider than it."""
    screen = terminal()
    print(fitted(text, screen and screen[0]))


def tell_unknown(*results: Results) -> None:
    """Say once on stderr which columns, and fields of documents, were not read."""
    if names := sorted({name for one in results for name in one.unknown}):
        told = f"columns or fields that this version does not know are left out: {some(names)}"
        tell(f"bnpbench: warning: {told}; another version wrote them")


def tell_damaged(*results: Results) -> None:
    """Say on stderr which files were left out."""
    for path, reason in (each for one in results for each in one.damaged):
        tell(f"bnpbench: warning: left out: {plain(str(path))}: {plain(reason)}")


def write(text: str, output: Path | None) -> None:
    """To stdout, or to what is named: a file appears whole, behind a link too; a device or a pipe is written to.

    Raises:
        BnpbenchError: the file cannot be written.
    """
    if output is None:
        print(text)
        return
    if output.is_dir():  # as "", "." and "/" are
        raise BnpbenchError(f"--output {output}: this is a folder; name a file in it")
    try:
        _write(text + "\n", output)
    except OSError as error:
        raise BnpbenchError(f"--output {output}: cannot be written ({error.strerror})") from error


def _write(text: str, output: Path) -> None:
    try:
        there = output.stat()
    except FileNotFoundError:
        there = None
    if there is not None:
        for number, stream in ((1, sys.stdout), (2, sys.stderr)):  # as /dev/stdout is
            with suppress(OSError):
                if os.path.samestat(there, os.fstat(number)):
                    stream.write(text)
                    return
        if not stat.S_ISREG(there.st_mode):
            output.write_text(text, encoding="utf-8", errors="backslashreplace")
            return
    place = output.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        if there is not None:
            temporary.chmod(stat.S_IMODE(there.st_mode))
        temporary.replace(place)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


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
