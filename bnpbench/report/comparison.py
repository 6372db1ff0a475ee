"""The outcome of a comparison, and how it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bnpbench.report.document import Chapter, Entry, Place, Section, Table
from bnpbench.report.render.text import rendered
from bnpbench.statistics.intervals import Estimate
from bnpbench.text import dash, fixed, number_of

METRIC = "train_seconds"  # whose times are compared
IN_TURN = "in turn"  # remark of seconds that are not judged, as their ratio to vanilla is

Judgement = Literal["same", "within", "worse", "better", "undecided", "differs", "not judged"]


@dataclass(frozen=True)
class Change:
    """One comparison.

    Attributes:
        what: counts, accuracy, metric, status, seconds per epoch, ratio to vanilla.
        suite: where it was measured.
        method, batch_size, group: of which cells.
        quantity: the column.
        base, new: as text.
        change: ratio new / base with its interval; None for what has none.
        judgement: same, within (the tolerance or the threshold), worse (a regression), better (an improvement),
            undecided (the interval holds both), differs (neither), not judged.
        remark: why.
    """

    what: str
    suite: str
    method: str
    batch_size: int
    group: str
    quantity: str
    base: str
    new: str
    change: Estimate | None
    judgement: Judgement
    remark: str = ""

    @property
    def timed(self) -> bool:
        """Whether it is about times."""
        return self.quantity == METRIC


@dataclass(frozen=True)
class Comparison:
    """The outcome of ``compare``.

    Attributes:
        outcome: ``no baseline``, ``nothing shared``, ``same`` or ``changed``.
        changes: everything that was compared.
        shared, only_left, only_right: names of cells.
        notes: what differs between the runs, and what was judged how.
    """

    outcome: Literal["no baseline", "nothing shared", "same", "changed"]
    changes: tuple[Change, ...] = ()
    shared: tuple[str, ...] = ()
    only_left: tuple[str, ...] = ()
    only_right: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def undecided(self) -> bool:
        """Whether a slow-down could have been overlooked: an interval is too wide, or a time could not be judged."""
        return any(change.judgement in ("undecided", "not judged") for change in self.to_judge)

    @property
    def to_judge(self) -> list[Change]:
        """The times in which a slow-down would have to show."""
        return [change for change in self.changes if change.timed and not change.remark.startswith(IN_TURN)]

    @property
    def exit_code(self) -> int:
        """0 fine; 1 something is worse; 4 there was nothing to compare with."""
        return {"no baseline": 4, "nothing shared": 4, "same": 0, "changed": 1}[self.outcome]

    @property
    def chapters(self) -> list[Chapter]:
        """What is shown of it."""
        return [Chapter("", "", tuple(_sections(self)))]

    def render(self, format: str = "markdown") -> str:  # noqa: A002 - the name of the option
        """As ``markdown``, ``csv`` or ``json``. Raises BnpbenchError for another format."""
        return rendered(self.chapters, format)


def _sections(comparison: Comparison) -> Iterable[Section]:
    found = {
        judgement: [change for change in comparison.changes if change.judgement == judgement]
        for judgement in ("worse", "undecided", "better", "differs")
    }
    others = ((found["better"], "improvement"), (found["undecided"], "undecided"))
    more = "".join(f", {_number(changes, word)}" for changes, word in others if changes)
    blind = sum(change.judgement == "not judged" for change in comparison.to_judge)
    if blind:
        more += f"; {blind} of {number_of(len(comparison.to_judge), 'time')} could not be judged"
    verdict = {
        "no baseline": "no baseline",
        "nothing shared": "nothing to compare",
        "same": f"no regression{' found' if blind else ''}{more}",
        "changed": f"{_number(found['worse'], 'regression')}{more}",
    }[comparison.outcome]
    cells = (
        f"{number_of(len(comparison.shared), 'cell')} in both, {len(comparison.only_left)} only in the base, "
        f"{len(comparison.only_right)} only in the new results"
    )
    timed = [change for change in comparison.changes if change.timed]
    unjudged = comparison.shared and all(change.judgement == "not judged" for change in timed)
    warning = ("warning: no time was judged; the remarks say why",) if unjudged else ()
    yield Section(f"Comparison: {verdict}", (cells, *warning, *comparison.notes), level=1)
    titles = {"worse": "Worse", "undecided": "Undecided", "better": "Better", "differs": "Different"}
    for judgement, title in titles.items():
        if changes := found[judgement]:
            again = replace(_table(changes), entries=())  # they stand in the tables below
            yield Section(title, tables=(again,))
    if timed:
        yield Section("Times", tables=(_table(timed),))
    exact = [change for change in comparison.changes if not change.timed]
    if exact:
        yield Section("Counts, accuracy and status", tables=(_counts(exact),))
    for title, names in (
        ("Only in the base", comparison.only_left),
        ("Only in the new results", comparison.only_right),
    ):
        if names:
            yield Section(title, tables=(Table("", ("cell",), tuple((name,) for name in names)),))


def _table(changes: Sequence[Change]) -> Table:
    columns = ("judgement", "suite", "method", "N", "over", "what", "base", "new", "new / base", "remark")
    rows = tuple(
        (
            c.judgement,
            c.suite,
            c.method,
            str(c.batch_size),
            c.group,
            _what(c),
            c.base,
            c.new,
            _ratio(c.change),
            c.remark,
        )
        for c in changes
    )
    return Table("", columns, rows, (), tuple(map(_entry, changes)))


def _counts(changes: Sequence[Change]) -> Table:
    """How many of each quantity were judged how; the unequal ones stand above one by one."""
    counts = Counter((_what(change), change.judgement) for change in changes)
    rows = tuple((what, judgement, str(count)) for (what, judgement), count in counts.items())
    return Table("", ("what", "judgement", "cells"), rows, (), tuple(map(_entry, changes)))


def _what(change: Change) -> str:
    return change.what if change.timed else change.quantity


def _number(changes: Sequence[Change], word: str) -> str:
    return f"{len(changes)} {word}" if word == "undecided" else number_of(len(changes), word)


def _ratio(estimate: Estimate | None) -> str:
    if estimate is None:
        return dash()
    if estimate.low is None or estimate.high is None:
        return f"{fixed(estimate.value, 3)} {dash(estimate.reason)}"
    return f"{fixed(estimate.value, 3)} [{fixed(estimate.low, 3)}, {fixed(estimate.high, 3)}]"


def _entry(change: Change) -> Entry:
    text = "; ".join(filter(None, (change.judgement, f"base {change.base}, new {change.new}", change.remark)))
    place = Place(change.what, f"{change.suite}, {change.group}", change.method, change.batch_size)
    found = change.change
    quantity = f"{change.quantity} ratio, new / base" if change.timed else change.quantity
    if found is None:
        return place.entry(quantity, text=text)
    return place.entry(quantity, found.value, found.low, found.high, found.n, text)
