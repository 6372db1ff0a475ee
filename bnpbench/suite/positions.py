"""Where in a TOML text a value comes from; tomllib gives no positions for valid documents."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

Path = Sequence[str | int]

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # strings first, so that what they hold is not read
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*|[\[{]|[\]}]|\n",
    re.DOTALL,
)


def line_of(text: str, path: Path) -> int | None:
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


def contains(document: Any, path: Path) -> bool:
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


def dotted(path: Path) -> str:
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
