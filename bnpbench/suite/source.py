"""A suite's text: read within limits, parsed, and able to say in which line a fault lies."""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bnpbench.errors import Origin, SuiteError

KeyPath = Sequence[str | int]

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # strings first, so that what they hold is not read
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*|[\[{]|[\]}]|\n",
    re.DOTALL,
)


def line_of(text: str, path: KeyPath) -> int | None:
    """The first line of the statement that brings the value at ``path`` into the document.

    That statement ends the shortest prefix of whole statements whose document contains the path, so
    it is found by bisection. Where the path leads nowhere (a missing key), its longest part that
    exists is taken; None for the document as a whole.

    Args:
        text: a valid TOML document.
        path: keys, and positions in lists from 0.
    """
    document = tomllib.loads(text)
    path = list(path)
    while path and not contains(document, path):
        path.pop()
    if not path:
        return None
    lines, ends = text.split("\n"), _statement_ends(text)
    low, high = 0, len(ends) - 1  # the statement sought is ends[low..high]
    while low < high:
        middle = (low + high) // 2
        if contains(tomllib.loads("\n".join(lines[: ends[middle]])), path):
            high = middle
        else:
            low = middle + 1
    start = ends[low - 1] if low else 0
    return next(n for n in range(start, ends[low]) if lines[n].strip() and not lines[n].lstrip().startswith("#")) + 1


def contains(document: Any, path: KeyPath) -> bool:
    """Whether the document has a value at ``path``; what lies below a plain value counts as there."""
    for key in path:
        if isinstance(document, dict):
            if key not in document:
                return False
        elif isinstance(document, list):
            if not (isinstance(key, int) and key < len(document)):
                return False
        else:
            return True
        document = document[key]
    return True


def dotted(path: KeyPath) -> str:
    """A path as people write it: ``sweep.method[2].rho``; long ones are cut."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += ("." if text else "") + (key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else repr(key))
    return text if len(text) <= 200 else text[:197] + "..."


def first_line_deeper(text: str, depth: int) -> int | None:
    """The first line where more than ``depth`` brackets are open."""
    return next((line for line, open_brackets, _ in _brackets(text) if open_brackets > depth), None)


def _statement_ends(text: str) -> list[int]:
    """Numbers of lines after which a statement is complete, the last line included."""
    ends = [line for line, open_brackets, token in _brackets(text) if token == "\n" and not open_brackets]
    return [*ends, text.count("\n") + 1]


def _brackets(text: str) -> Iterator[tuple[int, int, str]]:
    """For each bracket and line end outside texts and comments: its line, the brackets open after it, itself."""
    line, depth = 1, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in ("[", "{", "]", "}"):
            depth += 1 if token in "[{" else -1
        if token in ("[", "{", "]", "}", "\n"):
            yield line, depth, token
        line += token.count("\n")


MAX_BYTES = 64 * 1024
MAX_LINE = 2000
MAX_DEPTH = 16


@dataclass(frozen=True)
class Source:
    """A suite file and what stands in it.

    Attributes:
        path: of the file.
        text: of the file.
        document: what stands in it.
        given: what the command line puts in its place: from a key path to the option and the setting that this names.
    """

    path: Path
    text: str
    document: dict[str, Any]
    given: Mapping[tuple[str | int, ...], tuple[str, KeyPath]] = field(default_factory=dict)

    def origin(self, key: KeyPath) -> Origin:
        """Where the value at a key path was written."""
        for part, (option, own) in self.given.items():
            if tuple(key[: len(part)]) == part:
                rest = key[len(part) :]
                return Origin(key=option if list(rest) in ([], list(own)) else f"{option}: {dotted(rest)}")
        return Origin(self.path, line_of(self.text, key), dotted(key) or None)

    def error(self, message: str, key: KeyPath, closest: str | None = None) -> SuiteError:
        """The error for a fault at the key path ``key``, with file and line."""
        return SuiteError(message, **self.origin(key)._asdict(), closest=closest)


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
        raise SuiteError("not UTF-8; save it as that", file=path, line=raw[: error.start].count(b"\n") + 1) from None
    text = text.replace("\r\n", "\n")  # as TOML does, so that lines and positions agree
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_LINE:
            message = f"a line has at most {MAX_LINE:,} characters, this one {len(line):,}; break it after a comma"
            raise SuiteError(message, file=path, line=number)
    return text


def _parsed(path: Path, text: str) -> dict[str, Any]:
    too_deep = f"nested too deep; at most {MAX_DEPTH} levels"
    if (line := first_line_deeper(text, MAX_DEPTH)) is not None:  # whatever the interpreter's limit is
        raise SuiteError(too_deep, file=path, line=line)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SuiteError(too_deep, file=path) from None
    except ValueError as error:  # TOMLDecodeError, and what int() says of endless numbers
        message, line = _located(str(error), text)
        if message.startswith(("Cannot mutate immutable namespace", "Cannot overwrite a value")):
            message += (
                "; a key stands once: a part of what a = ... gives stands within its braces, as a = { b = 1 }, and "
                'where [sweep] has a list for a, in quotes, as "a.b" = [1, 2]'
            )
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


def _items(value: object) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _fault(value: object) -> str | None:
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
