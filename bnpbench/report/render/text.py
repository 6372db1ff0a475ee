"""A document as markdown, CSV, JSON and LaTeX. What comes from files is escaped here, at the sink."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields

from bnpbench.errors import BnpbenchError
from bnpbench.report.document import Chapter, Entry, Section, Table
from bnpbench.report.render.latex import to_latex
from bnpbench.text import csv_cell, markdown, pipe_table, plain

RECORD = tuple(field.name for field in fields(Entry) if field.name != "shown")


def rendered(chapters: Sequence[Chapter], format: str) -> str:  # noqa: A002 - the name of the option
    """The text. Raises BnpbenchError for another format than those of ``RENDERERS``."""
    if format not in RENDERERS:
        raise BnpbenchError(f"no format is called {format!r}; there are {', '.join(RENDERERS)}")
    return RENDERERS[format](chapters)


def to_markdown(chapters: Sequence[Chapter]) -> str:
    """Headings, lists and pipe tables."""
    parts = [part for chapter in chapters for section in chapter.sections for part in _markdown_section(section)]
    return "\n\n".join(parts) + "\n"


def to_csv(chapters: Sequence[Chapter]) -> str:
    """All numbers in one tidy table, one row each, with ``suite`` and ``environment`` in front."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["suite", "environment", *RECORD])
    for chapter in chapters:
        place = [csv_cell(chapter.suite), csv_cell(chapter.environment)]
        tables = [table for section in chapter.sections for table in section.tables]
        writer.writerows([*place, *map(_csv_value, _record(entry))] for table in tables for entry in table.records)
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


RENDERERS: Mapping[str, Callable[[Sequence[Chapter]], str]] = {
    "markdown": to_markdown,
    "csv": to_csv,
    "json": to_json,
    "latex": to_latex,
}


def _markdown_section(section: Section) -> Iterable[str]:
    if section.title:
        yield f"{'#' * section.level} {markdown(section.title)}"
    if section.lines:
        yield "\n".join(f"- {markdown(line)}" for line in section.lines)
    for table in section.tables:
        if table.title:
            yield f"{'#' * (section.level + 1)} {markdown(table.title)}"
        yield from (markdown(reason) for reason in table.reasons)
        rows = [[markdown(cell) for cell in row] for row in table.texts]
        yield pipe_table([markdown(name) for name in table.columns], rows)
        yield from (markdown(note) for note in table.notes)


def _json_table(table: Table) -> dict[str, object]:
    return {
        "title": plain(table.title),
        "columns": [plain(name) for name in table.columns],
        "rows": [[plain(cell) for cell in row] for row in table.texts],
        "notes": [plain(note) for note in (*table.reasons, *table.notes)],
        "records": [dict(zip(RECORD, map(_json_value, _record(entry)), strict=True)) for entry in table.records],
    }


def _record(entry: Entry) -> Iterable[str | float | None]:
    return (getattr(entry, name) for name in RECORD)


def _csv_value(value: str | float | None) -> str:
    if value is None:
        return ""
    return csv_cell(value) if isinstance(value, str) else str(value)


def _json_value(value: str | float | None) -> str | float | None:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return plain(value) if isinstance(value, str) else value
