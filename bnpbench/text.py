"""Numbers as text, a hash of text, and text made harmless for the place it goes to."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence

DASH = "–"
_INTERVAL = re.compile(r"(?<=,) (?=[^\[\]]*\])|(?<=[0-9∞]) (?=[%µmGk]?[sBJ%]\b)")  # in an interval, before a unit
_TIED = "\N{NO-BREAK SPACE}"
_MARKED = re.compile(r"([\\|<`])")


def significant(value: float, digits: int = 4) -> str:
    """A number with so many significant digits and no exponent where one can be avoided."""
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "-∞"}.get(value, "nan")
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -5 < magnitude < 15:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def fixed(value: float, digits: int) -> str:
    """A number with so many decimals."""
    return f"{value:,.{digits}f}" if math.isfinite(value) else significant(value)


def decimals(value: float, digits: int = 4) -> int:
    """How many decimals show so many significant digits of a number."""
    if abs(value) < 1e-12 or not math.isfinite(value):
        return 0
    return min(12, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def dash(reason: str = "") -> str:
    """What stands in the place of a number that is not there."""
    return f"{DASH} ({reason})" if reason else DASH


def span(numbers: Iterable[int]) -> str:
    """``1-3, 5`` for 1, 2, 3, 5."""
    ordered, runs = sorted(set(numbers)), list[list[int]]()
    for number in ordered:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}{DASH}{b}" for a, b in runs)


def short_hash(text: str) -> str:
    """The first 12 hex digits of its SHA-256: what cells, blocks and environments are known by."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def number_of(count: int, noun: str) -> str:
    """``1 suite``, ``2 suites``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds as a person says them: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def plural(count: int, one: str, several: str) -> str:
    """The form of a word that goes with so many."""
    return one if count == 1 else several


def some(names: Iterable[str], most: int = 5) -> str:
    """The first of many names, and how many more there are."""
    every = [plain(name)[:60] for name in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def plain(text: str) -> str:
    """Text without control characters: a terminal shows it and obeys none of it."""
    return text if text.isprintable() else "".join(map(_visible, text))


def markdown(text: str) -> str:
    """Text for a paragraph or a table cell of markdown."""
    text = plain(text)
    if _MARKED.search(text):  # seldom, and a substitution of nothing costs more than this look
        text = _MARKED.sub(r"\\\1", text)
    return text.replace("](", "]\\(")


def pipe_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of markdown, the same as of ``tabulate``, which takes ten times as long: a report may have hundreds.

    Args:
        columns: headings; each column is two wider than its own at least.
        rows: what stands below them, as markdown.
    """
    cells = [[cell.strip() for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip([f"{name}  " for name in columns], *cells, strict=True)]
    left = ":" if cells else "-"
    rule = "|".join(left + "-" * (width + 1) for width in widths)
    lines = [f"| {' | '.join(map(str.ljust, row, widths))} |" for row in (columns, *cells)]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def words(text: str) -> list[str]:
    """What no line breaks, with intervals and units as one word each."""
    return _INTERVAL.sub(_TIED, text).split(" ")


def folded(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` columns, broken between words; a word that is wider is broken where it must be."""
    from rich.cells import cell_len  # whoever only writes files needs none of it

    lines = [""]
    for word in words(text):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(longer) <= width:
            lines[-1] = longer
            continue
        pieces = [word]
        while cell_len(pieces[-1]) > width > 0:
            whole = pieces.pop()
            head = next(end for end in range(len(whole), 0, -1) if end == 1 or cell_len(whole[:end]) <= width)
            pieces += [whole[:head], whole[head:]]
        lines += pieces if lines[-1] else [*pieces]
        if not lines[0]:
            lines.pop(0)
    return [line.replace(_TIED, " ") for line in lines]


def fitted(text: str, width: int | None) -> str:
    """Lines folded between words, with their indent; as they are without a width."""
    if width is None or all(len(line) <= width // 2 for line in text.splitlines()):  # no letter takes more than two
        return text
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())][: width // 2]
        lines += [indent + part for part in folded(line.lstrip(), width - len(indent))]
    return "\n".join(lines) + ("\n" if text.endswith("\n") else "")


def csv_cell(text: str) -> str:
    """Text for a CSV cell that no spreadsheet takes for a formula."""
    safe = plain(text)
    return f"'{safe}" if safe.startswith(("=", "+", "@")) else safe


def _visible(letter: str) -> str:
    if letter in "\n\r\t":
        return " "
    category = unicodedata.category(letter)
    if category in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return f"\\u{ord(letter):04x}"
    return letter
