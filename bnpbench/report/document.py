"""A report as tables and paragraphs, and how they become markdown, CSV and JSON.

Every cell of a table is text made once, with its spread, for readers; beside it stand records, the same numbers for
programs. What comes from files is escaped here, at the sink.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tabulate import tabulate

from bnpbench.statistics.intervals import Estimate
from bnpbench.text import csv_cell, markdown, plain


@dataclass(frozen=True)
class Record:
    """One number, or the reason why there is none.

    Attributes:
        table: the name of its table.
        group: the settings that tell the table's cells from those of its sisters.
        method: label of the method.
        batch_size: examples a step.
        quantity: what the number is, with its unit.
        value: the number; None where there is none.
        low, high: its interval, or its range over seeds; None where there is none.
        n: how many values it rests on.
        text: the reason, a verdict, a source.
    """

    table: str
    group: str = ""
    method: str = ""
    batch_size: int | None = None
    quantity: str = ""
    value: float | int | None = None
    low: float | int | None = None
    high: float | int | None = None
    n: int | None = None
    text: str = ""


def record(estimate: Estimate, **place: Any) -> Record:
    """The record of an estimate."""
    text = "; ".join(filter(None, (str(place.pop("text", "")), estimate.reason)))
    return Record(value=estimate.value, low=estimate.low, high=estimate.high, n=estimate.n, text=text, **place)


@dataclass(frozen=True)
class Table:
    """A table for readers, with its records.

    Attributes:
        title: heading; empty under a heading that stands already.
        columns: headings of the columns.
        rows: cells as text.
        notes: what a reader must know, one paragraph each.
        records: the numbers.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()


@dataclass(frozen=True)
class Section:
    """A heading with lines, then tables.

    Attributes:
        title: heading.
        lines: one item each.
        tables: below them.
        level: of the heading, from 1.
    """

    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    level: int = 2


@dataclass(frozen=True)
class Chapter:
    """All sections of one suite in one environment; both empty where neither applies."""

    suite: str
    environment: str
    sections: tuple[Section, ...]


def to_markdown(chapters: Sequence[Chapter]) -> str:
    """Headings, lists and pipe tables."""
    parts = [part for chapter in chapters for section in chapter.sections for part in _markdown_section(section)]
    return "\n\n".join(parts) + "\n"


def to_csv(chapters: Sequence[Chapter]) -> str:
    """All numbers in one tidy table, one row each, with ``suite`` and ``environment`` in front."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = [field.name for field in fields(Record)]
    writer.writerow(["suite", "environment", *names])
    for chapter, row in _records(chapters):
        values = [_csv_value(getattr(row, name)) for name in names]
        writer.writerow([csv_cell(chapter.suite), csv_cell(chapter.environment), *values])
    return stream.getvalue()


def to_json(chapters: Sequence[Chapter]) -> str:
    """Sections with their lines, tables and records; infinite numbers are the texts "inf" and "-inf", NaN "nan"."""
    document = [
        {
            "suite": plain(chapter.suite),
            "environment": plain(chapter.environment),
            "sections": [
                {
                    "title": plain(section.title),
                    "lines": [plain(line) for line in section.lines],
                    "tables": [_json_table(table) for table in section.tables],
                }
                for section in chapter.sections
            ],
        }
        for chapter in chapters
    ]
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


RENDERERS = {"markdown": to_markdown, "csv": to_csv, "json": to_json}


def _markdown_section(section: Section) -> Iterable[str]:
    yield f"{'#' * section.level} {markdown(section.title)}"
    if section.lines:
        yield "\n".join(f"- {markdown(line)}" for line in section.lines)
    for table in section.tables:
        if table.title:
            yield f"{'#' * (section.level + 1)} {markdown(table.title)}"
        rows = [[markdown(cell) for cell in row] for row in table.rows]
        yield tabulate(rows, [markdown(name) for name in table.columns], tablefmt="pipe", disable_numparse=True)
        yield from (markdown(note) for note in table.notes)


def _json_table(table: Table) -> dict[str, Any]:
    return {
        "title": plain(table.title),
        "columns": [plain(name) for name in table.columns],
        "rows": [[plain(cell) for cell in row] for row in table.rows],
        "notes": [plain(note) for note in table.notes],
        "records": [
            {field.name: _json_value(getattr(row, field.name)) for field in fields(row)} for row in table.records
        ],
    }


def _records(chapters: Sequence[Chapter]) -> Iterable[tuple[Chapter, Record]]:
    for chapter in chapters:
        for section in chapter.sections:
            for table in section.tables:
                for row in table.records:
                    yield chapter, row


def _csv_value(value: Any) -> str:
    if value is None:
        return ""
    return csv_cell(value) if isinstance(value, str) else str(value)


def _json_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return plain(value) if isinstance(value, str) else value
