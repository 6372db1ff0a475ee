"""A document for a terminal: nothing is wider than it, and no word is broken that fits into a line.

A table that is too wide first loses the columns that it can spare, then its widest columns are folded between words;
one whose words alone are too wide is written row by row, a line a column.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from bnpbench.report.document import Chapter, Section, Table
from bnpbench.text import folded, plain, words

GAP = 2  # between columns
_STYLES = {
    **dict.fromkeys(("better", "cheaper", "holds", "ok"), "green"),
    **dict.fromkeys(("worse", "dearer", "fails"), "red"),
    **dict.fromkeys(("undecided", "no data", "not comparable"), "yellow"),
}  # of a place of a table that begins with one of these words


def to_terminal(chapters: Sequence[Chapter], width: int, colour: bool = False) -> str:
    """Headings, lines and tables.

    Args:
        chapters: what is shown.
        width: of the terminal, in columns.
        colour: whether it may be sent colours.
    """
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    sections = [section for chapter in chapters for section in chapter.sections]
    for number, section in enumerate(sections):
        if number:
            console.print()
        _print_section(console, section)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _print_section(console: Console, section: Section) -> None:
    if section.title:
        _print_heading(console, section.title)
    for line in section.lines:
        _print_lines(console, plain(line), indent=2 if section.title else 0, first="- " if section.title else "")
    for place, table in enumerate(section.tables):
        if place or section.lines:
            console.print()
        if table.title:
            _print_heading(console, table.title)
        for note in table.reasons:
            _print_lines(console, plain(note))
        if table.rows:
            _print_table(console, table)
        for note in table.notes:
            _print_lines(console, plain(note), style="dim")


def _print_heading(console: Console, title: str) -> None:
    _print_lines(console, plain(title), style="bold")


def _print_lines(console: Console, text: str, *, indent: int = 0, first: str = "", style: str = "") -> None:
    for number, line in enumerate(folded(text, console.width - indent)):
        lead = (first if not number else "").ljust(indent)
        console.print(Text(lead + line, style=style), no_wrap=True, overflow="ignore", crop=False)


def _print_table(console: Console, table: Table) -> None:
    columns = [_Column(name, [row[place] for row in table.texts]) for place, name in enumerate(table.columns)]
    left_out = list[str]()
    for name in table.spare:
        if sum(column.easy for column in columns) + GAP * (len(columns) - 1) <= console.width:
            break
        columns = [column for column in columns if column.name != plain(name)]
        left_out.append(name)
    if sum(column.least for column in columns) + GAP * (len(columns) - 1) > console.width:
        _print_rows(console, columns)
    else:
        _print_grid(console, columns)
    if left_out:
        _print_lines(console, f"Too wide for here: {', '.join(map(plain, left_out))}.", style="dim")


def _print_grid(console: Console, columns: Sequence[_Column]) -> None:
    widths = _widths(columns, console.width - GAP * (len(columns) - 1))
    grid = Grid(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold", collapse_padding=True)
    for column, width in zip(columns, widths, strict=True):
        heading = Text("\n".join(folded(column.name, width)))
        grid.add_column(heading, width=width, no_wrap=True, overflow="ignore", vertical="top")
    for row in zip(*(column.cells for column in columns), strict=True):
        grid.add_row(
            *(Text("\n".join(folded(cell, w)), style=_style(cell)) for cell, w in zip(row, widths, strict=True))
        )
    console.print(grid, crop=False)


def _print_rows(console: Console, columns: Sequence[_Column]) -> None:
    for row in zip(*(column.cells for column in columns), strict=True):
        for number, (column, cell) in enumerate(zip(columns, row, strict=True)):
            if cell:
                _print_lines(console, f"{column.name}: {cell}", indent=2, first="" if number else "- ")


class _Column:
    """A column's heading and places, and how wide they are."""

    def __init__(self, name: str, cells: Iterable[str]) -> None:
        self.name, self.cells = plain(name), [plain(cell) for cell in cells]
        heading = max(map(cell_len, words(self.name)))
        self.easy = max((heading, *map(cell_len, self.cells)))  # with nothing folded but the heading
        self.natural = max(self.easy, cell_len(self.name))
        self.least = max((heading, *(cell_len(word) for cell in self.cells for word in words(cell))))


def _widths(columns: Sequence[_Column], room: int) -> list[int]:
    """As wide as they are; where there is no room for that headings are folded, then the widest places."""
    widths = [column.natural for column in columns]
    for limit in ("easy", "least"):
        while sum(widths) > room:
            wide = [place for place, column in enumerate(columns) if widths[place] > getattr(column, limit)]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _style(cell: str) -> str:
    return next((style for word, style in _STYLES.items() if cell == word or cell.startswith(f"{word} ")), "")
