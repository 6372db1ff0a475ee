"""The report as a page: the report's own tables and figures, put into one HTML file.

What comes from files is text to the template, which escapes it, and JSON inside a script, where no ``<`` is left.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from bnpbench.errors import BnpbenchError
from bnpbench.report.data import View, views
from bnpbench.report.document import Chapter, Section, Table
from bnpbench.report.figures import Figure, figures, inks
from bnpbench.report.render.page_data import Raw, figure_data, method_data, raw_files, script_json
from bnpbench.report.tables import chapters
from bnpbench.report.tables.answer import TITLE
from bnpbench.results import Results
from bnpbench.text import DASH, plain

MOST_BYTES = 6_000_000
_NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|[-−]?∞")
_SCRIPTS = {
    "plotly": ("plotly", "package_data/plotly.min.js"),
    "tables": ("itables", "html/dt_bundle.js"),
}
_NOTICE = re.compile(r"/\*[!*](?:(?!\*/).){0,20000}?\*/", re.DOTALL)
_OPEN = ("Claims", "Deviations")  # titles of what is not folded
_TONES = {
    **dict.fromkeys(("better", "cheaper"), "good"),
    **dict.fromkeys(("worse", "dearer"), "bad"),
    "undecided": "open",
    "not comparable": "open",
}
_LAST = 1e308  # where what is no number stands among numbers


def render_page(results: Results, folders: Sequence[Path] = (), base: Path = Path(), *, every: bool = False) -> str:
    """The whole page.

    Args:
        results: what was read.
        folders: where it was read from, for links to the raw files; without them there are no links.
        base: the folder in which the page will lie.
        every: as of :func:`bnpbench.report.figures.figures`.

    Raises:
        BnpbenchError: there is so much that the page would exceed ``MOST_BYTES``.
    """
    for with_files in (True, False):
        text = _rendered(results, folders if with_files else (), base, every)
        if (size := len(text.encode())) <= MOST_BYTES:
            return text
    raise BnpbenchError(
        f"the page would have {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f}: name the folders of single suites"
    )


@dataclass(frozen=True)
class _Cell:
    """A cell of a table: its text, and what it is sorted by."""

    text: str
    order: float | str


@dataclass(frozen=True)
class _Part:
    """A chapter as the template wants it.

    Attributes:
        anchor: of its heading.
        title, name: its heading, and how the menu calls it.
        answer: what is shown first, with its figures; None where there is none.
        plain: claims, and what else is not folded.
        folded: the details.
        pictures, figures: of the answer, and the others, with their JSON.
        raw: links to the files.
    """

    anchor: str
    title: str
    name: str
    lines: tuple[str, ...]
    answer: Section | None
    plain: tuple[Section, ...]
    folded: tuple[Section, ...]
    pictures: tuple[tuple[Figure, str], ...]
    figures: tuple[tuple[Figure, str], ...]
    raw: Raw


def _rendered(results: Results, folders: Sequence[Path], base: Path, every: bool) -> str:
    seen = views(results)
    colours = inks(seen)
    names = list(colours)
    everything = figures(seen, every=every)
    found = list(enumerate(chapters(results), 1))
    several = Counter(chapter.suite for _, chapter in found)
    return _template().render(
        parts=[_part(*pair, several, seen, everything, names, folders, base) for pair in found],
        methods=script_json(method_data(colours)),
        scripts=packed_scripts(),
        licences=licences(),
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bnpbench.report.render", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_plain,
    )
    environment.filters |= {"body": body, "caption": _caption, "lines": _lines, "tone": _tone}
    environment.tests["verdicts"] = lambda table: table.columns[:1] == ("verdict",)
    return environment.get_template("page.html.j2")


def _part(
    number: int,
    chapter: Chapter,
    several: Mapping[str, int],
    seen: Sequence[View],
    everything: Iterable[Figure],
    names: Sequence[str],
    folders: Sequence[Path],
    base: Path,
) -> _Part:
    place = chapter.suite, chapter.environment
    view = next((view for view in seen if (view.suite, view.id) == place), None)
    head, *sections = chapter.sections
    if head.level > 1:  # a chapter without an overview: what was left out
        head, sections = Section(head.title, level=1), [head]
    answer = next((section for section in sections if section.title == TITLE), None)
    rest = [section for section in sections if section is not answer]
    open_ = [section for section in rest if not view or section.title.startswith(_OPEN)]
    drawn = [
        (figure, script_json(figure_data(figure, names)))
        for figure in everything
        if view and (figure.suite, figure.environment) == place
    ]
    return _Part(
        f"part-{number}",
        head.title,
        chapter.suite if chapter.suite and several[chapter.suite] == 1 else head.title,
        head.lines,
        answer,
        tuple(open_),
        tuple(section for section in rest if section not in open_),
        tuple(pair for pair in drawn if pair[0].kind == "cost-and-gain"),
        tuple(pair for pair in drawn if pair[0].kind != "cost-and-gain"),
        raw_files(view, folders, base) if view else Raw(),
    )


def _plain(value: object) -> object:
    """Texts without control characters; what is markup already stays as it is."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else plain(value)


def _lines(text: str) -> Markup:
    """A text of several lines, escaped, that keeps its ends of lines."""
    return Markup("\n").join(plain(line) for line in text.splitlines())


def _caption(table: Table, section: Section) -> str:
    return table.title or section.title


def _tone(text: str) -> str:
    """The class of a word that is a verdict; the word says it, the colour only helps to find it."""
    return _TONES.get(text, "")


def body(rows: Sequence[Sequence[str]]) -> list[list[_Cell]]:
    """Cells with what they are sorted by: a column of numbers by its numbers, any other by its text."""
    columns = list(zip(*rows, strict=True))
    numeric = [_is_numeric(column) for column in columns]
    return [
        [_Cell(text, _number(text) if number else text.lower()) for text, number in zip(row, numeric, strict=True)]
        for row in rows
    ]


def _is_numeric(column: Iterable[str]) -> bool:
    texts = [text for text in column if text and not text.startswith(DASH)]
    return bool(texts) and all(_NUMBER.match(text) for text in texts)


def _number(text: str) -> float:
    found = _NUMBER.match(text)
    if found is None:
        return _LAST
    digits = found[0].replace(",", "").replace("−", "-").replace("∞", "1e307")
    return float(digits)


# --- the two scripts, from the wheels that ship them, and their licences --------------------


@cache
def packed_scripts() -> dict[str, str]:
    """Name to script, gzipped and in base64: a third of its size, and no tag can end it early."""
    return {name: base64.b64encode(gzip.compress(_source(name).encode(), 9, mtime=0)).decode() for name in _SCRIPTS}


@cache
def licences() -> tuple[tuple[str, str], ...]:
    """Package and version, and the text of its licence with the notices that stand in its script."""
    found = []
    for name, (package, _) in _SCRIPTS.items():
        installed = distribution(package)
        texts = [
            path.read_text(encoding="utf-8")
            for path in installed.files or ()
            if ".dist-info" in str(path) and "LICEN" in path.name.upper()
        ]
        notices = [note for note in _NOTICE.findall(_source(name)) if re.search("licen[cs]e", note, re.IGNORECASE)]
        found.append((f"{package} {installed.version}", "\n\n".join([*texts, *notices]).replace("\\n", "\n")))
    return tuple(found)


@cache
def _source(name: str) -> str:
    package, path = _SCRIPTS[name]
    return files(package).joinpath(path).read_text(encoding="utf-8")
