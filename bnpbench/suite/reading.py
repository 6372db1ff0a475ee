"""A suite's text: read within limits, parsed, and able to say where in it a fault lies."""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bnpbench.errors import SuiteError
from bnpbench.suite import positions

MAX_BYTES = 64 * 1024
MAX_LINE = 2000
MAX_DEPTH = 16


@dataclass(frozen=True)
class Source:
    """A suite file and what stands in it."""

    path: Path
    text: str
    document: dict[str, Any]

    def error(self, message: str, key: positions.Path, closest: str | None = None) -> SuiteError:
        """The error for a fault at the key path ``key``, with file and line."""
        line = positions.line_of(self.text, key)
        return SuiteError(message, file=self.path, line=line, key=positions.dotted(key) or None, closest=closest)


def read(path: Path) -> Source:
    """Reads and parses a suite file.

    Raises:
        SuiteError: it is not a readable TOML file within the limits, or holds what no suite can.
    """
    text = _text(path)
    source = Source(path, text, _parsed(path, text))
    _check_values(source)
    return source


def _text(path: Path) -> str:
    try:
        if not path.exists():
            raise SuiteError("no such file; give the path of a suite, or the bare name of a shipped one", file=path)
        if not path.is_file():
            raise SuiteError("not a file; give the path of a suite file (TOML)", file=path)
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise SuiteError(f"cannot be read: {getattr(error, 'strerror', None) or error}", file=path) from None
    if len(raw) > MAX_BYTES:
        raise SuiteError(f"a suite has at most {MAX_BYTES // 1024} KiB", file=path)
    if raw.startswith(b"\xef\xbb\xbf"):
        raise SuiteError("starts with a byte order mark; save it as UTF-8 without one", file=path, line=1)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SuiteError("not UTF-8", file=path, line=raw[: error.start].count(b"\n") + 1) from None
    text = text.replace("\r\n", "\n")  # as TOML does, so that lines and positions agree
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_LINE:
            message = f"a line has at most {MAX_LINE:,} characters, this one {len(line):,}; break it after a comma"
            raise SuiteError(message, file=path, line=number)
    return text


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        line = positions.first_line_deeper(text, MAX_DEPTH)
        raise SuiteError(f"nested too deep; at most {MAX_DEPTH} levels", file=path, line=line) from None
    except ValueError as error:  # TOMLDecodeError, and what int() says of endless numbers
        message, line = _located(str(error), text)
        raise SuiteError(f"not valid TOML: {message}", file=path, line=line) from None


def _located(message: str, text: str) -> tuple[str, int | None]:
    """Takes the place out of a message of tomllib."""
    place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    if place is None:
        return message, None
    line = int(place[1]) if place[1] else text.rstrip("\n").count("\n") + 1
    return message[: place.start()], line


def _check_values(source: Source) -> None:
    """Refuses what TOML can say and a suite cannot hold. Goes level by level, since a depth is not known yet."""
    level: list[tuple[tuple[str | int, ...], Any]] = [((), source.document)]
    for _ in range(MAX_DEPTH):
        inner = []
        for path, value in level:
            fault = _fault(value)
            if fault:
                raise source.error(fault, path)
            inner += [((*path, key), item) for key, item in _items(value)]
        level = inner
    if level:
        raise source.error(f"nested too deep; at most {MAX_DEPTH} levels", level[0][0])


def _items(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _fault(value: Any) -> str | None:
    match value:
        case datetime.date() | datetime.time():
            return f"no setting is a date or time; write {str(value)!r} in quotes if it is a text"
        case float() if not math.isfinite(value):
            return f"{value} is not a finite number"
        case int() if not -(2**63) <= value < 2**63:
            return "a whole number of more than 64 bits"
        case str() if "\0" in value:
            return "a text with a NUL character"
        case dict() if any("\0" in key for key in value):
            return "a key with a NUL character"
    return None
