"""Which cells a claim compares, and a reference stands beside."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from bnpbench.records.rows import METRICS, metrics
from bnpbench.suite.cells import Cell
from bnpbench.suite.document import (
    AtEpoch,
    AtEpochs,
    Claim,
    Document,
    Measure,
    Pattern,
    Reference,
    figure_fault,
)
from bnpbench.suite.expand import merged
from bnpbench.suite.explain import closest, listed, shown
from bnpbench.suite.matching import Codes, Column, Table, check_pattern, combinations, number_of_combinations
from bnpbench.suite.settings import FACTS, SETTINGS
from bnpbench.suite.source import KeyPath, Source
from bnpbench.suite.vocabulary import Vocabulary
from bnpbench.text import number_of

MAX_COMBINATIONS = 1000
STANDS_FOR = {name: fact.auto for name, fact in FACTS.items() if fact.auto is not None}
"""What "auto" may become when the machine is known; any number of threads."""


@dataclass(frozen=True)
class Combination:
    """One verdict of a claim: the cells of both sides, as positions among the cells asked.

    Attributes:
        where: what both sides have in common, one alternative of each list in the claim's ``where``.
        left, right: in the cells' order, one for each seed; right is empty where the claim has none.
    """

    where: Pattern
    left: Codes
    right: Codes


def combinations_of(claim: Claim, table: Table) -> Iterator[Combination]:
    """A claim's verdicts, in the order of its ``where``."""
    for where in combinations(claim.where, table.words):
        left = rows_of(table, side_pattern(where, claim.left.pattern, table.words))
        right = (
            rows_of(table, side_pattern(where, claim.right.pattern, table.words))
            if claim.right
            else np.array([], np.int64)
        )
        yield Combination(where, left, right)


def rows_of(table: Table, pattern: Pattern) -> Codes:
    """The positions of the cells that a pattern picks; if there are none, of those whose "auto" may become its word."""
    found = (np.flatnonzero(table.matching(reading)) for reading in _readings(pattern))
    return next((rows for rows in found if rows.size), np.array([], np.int64))


def table_of_cells(cells: Sequence[Cell], words: Vocabulary) -> Table:
    """Cells as columns."""
    return Table(len(cells), lambda name: Column([cell.data[name] for cell in cells], np.arange(len(cells))), words)


def _readings(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern itself, and then with "auto" in each place where that may become what it wants."""
    names = [name for name in STANDS_FOR if name in pattern]
    for words in product(*((pattern[name], _unresolved(name, pattern[name])) for name in names)):
        yield {**pattern, **dict(zip(names, words, strict=True))}


def _unresolved(name: str, wanted: object) -> object:
    if isinstance(wanted, list):
        return [_unresolved(name, word) for word in wanted]
    number = not STANDS_FOR[name] and isinstance(wanted, int) and not isinstance(wanted, bool)
    return "auto" if number or wanted in STANDS_FOR[name] else wanted


def side_pattern(where: Pattern, side: Pattern, words: Vocabulary) -> Pattern:
    """A side's settings over those of ``where``; a word, which may be a kind or a label, replaces."""
    return {**where, **{name: _over(SETTINGS[name], where.get(name), value, words) for name, value in side.items()}}


def _over(hint: object, wide: object, value: object, words: Vocabulary) -> object:
    return value if isinstance(value, str) else merged(words.as_table(hint, wide), words.as_table(hint, value))


def check_claims(source: Source, document: Document, table: Table, own: Collection[str]) -> None:
    """Raises SuiteError for a claim or a reference that no run of these cells could answer.

    Args:
        source, document: the suite.
        table: its cells.
        own: the metrics that they have beside those of bnpbench.
    """
    for number, reference in enumerate(document.reference):
        _check_reference(source, document, table, reference, ("reference", number), own)
    budget = MAX_COMBINATIONS
    for number, claim in enumerate(document.claim):
        place: KeyPath = ("claim", number)
        _check_figure(source, document, claim, place, own)
        sides = {"left": claim.left.pattern, "right": claim.right.pattern if claim.right else {}}
        _check_patterns(source, {"where": claim.where, **sides}, place, table.words)
        budget -= number_of_combinations(claim.where, table.words)
        if budget < 0:
            raise source.error(f"the claims have more than {MAX_COMBINATIONS:,} verdicts", (*place, "where"))
        for combination in combinations_of(claim, table):
            _check_combination(source, document, table, claim, combination, place)


def _check_reference(
    source: Source, document: Document, table: Table, reference: Reference, place: KeyPath, own: Collection[str]
) -> None:
    if document.select is None or reference.metric not in document.select.axes:  # the best value has no column
        _check_figure(source, document, reference, place, own)
    _check_patterns(source, {"cell": reference.cell}, place, table.words)
    if not rows_of(table, reference.cell).size:
        message, near = table.why_none(reference.cell)
        raise source.error(f"matches no cell: {message}", (*place, "cell"), near)


def _check_figure(
    source: Source, document: Document, figure: Claim | Reference, place: KeyPath, own: Collection[str]
) -> None:
    if figure.metric not in METRICS and figure.metric not in own:
        raise source.error(_unknown_metric(own), (*place, "metric"), closest(figure.metric, [*METRICS, *own]))
    fault = figure_fault(figure, document.report.metric)
    if fault:
        raise source.error(fault[1], (*place, *fault[0].split(".")))


def _unknown_metric(own: Collection[str]) -> str:
    others = [*metrics("targets"), *sorted(own)]
    return f"unknown metric; a metric is a numeric column of the results, or {', '.join(others)}"


def _check_patterns(source: Source, patterns: dict[str, Pattern], place: KeyPath, words: Vocabulary) -> None:
    for name, pattern in patterns.items():
        fault = check_pattern(pattern, words)
        if fault:
            raise source.error(fault[1], (*place, name, *fault[0]), fault[2])
        for setting, stands_for in STANDS_FOR.items():
            wanted = pattern.get(setting)
            if "auto" in (wanted if isinstance(wanted, list) else [wanted]):
                named = " or ".join(map(shown, stands_for)) or "a number"
                message = f'"auto" is replaced before cells are compared: name what it stands for, {named}'
                raise source.error(message, (*place, name, setting))


def _check_combination(
    source: Source, document: Document, table: Table, claim: Claim, combination: Combination, place: KeyPath
) -> None:
    """Each side has exactly one cell for each seed, and both have the same seeds."""
    told = f" where {_told(combination.where)}" if combination.where else ""
    _check_side(source, document, table, claim, combination, "left", place)
    if claim.right is None:
        return
    _check_side(source, document, table, claim, combination, "right", place)
    seeds = table["seed"].codes  # each once, as has been checked
    if not np.array_equal(np.sort(seeds[combination.left]), np.sort(seeds[combination.right])):
        left, right = (_seeds(table, rows) for rows in (combination.left, combination.right))
        message = f"left has the seeds {listed(left)} and right {listed(right)}{told}; they must agree"
        raise source.error(message, (*place, "right"))


def _check_side(
    source: Source,
    document: Document,
    table: Table,
    claim: Claim,
    combination: Combination,
    name: Literal["left", "right"],
    place: KeyPath,
) -> None:
    side = claim.left if name == "left" or claim.right is None else claim.right
    rows = combination.left if name == "left" else combination.right
    told = f" where {_told(combination.where)}" if combination.where else ""
    if not rows.size:
        message, near = table.why_none(side_pattern(combination.where, side.pattern, table.words))
        raise source.error(f"picks no cell{told}: {message}", (*place, name), near)
    codes = table["seed"].codes[rows]
    counts = np.bincount(codes)
    if counts.max() > 1:
        same = rows[codes == counts.argmax()]
        differ = " and ".join(n for n in SETTINGS if np.ptp(table[n].codes[same]))
        seed = table["seed"].values[counts.argmax()]
        message = f"picks {number_of(len(same), 'cell')} of seed {seed}{told}; one is needed, so say which {differ}"
        raise source.error(message, (*place, name))
    last, limit = _last_epoch(claim.at_of(name)), _epochs(document.measure, table, rows)
    if limit is not None and last > limit:
        key = (*place, name, "at") if side.at else (*place, "at")
        raise source.error(f"epoch {last} is after the last one, {limit}", key)


def _seeds(table: Table, rows: Codes) -> list[int]:
    return sorted(table["seed"].values[code] for code in table["seed"].codes[rows].tolist())


def _epochs(measure: Measure, table: Table, rows: Codes) -> int | None:
    """After how many epochs the first of some cells ends at the latest; None where seconds decide."""
    codes = np.flatnonzero(np.bincount(table["epochs"].codes[rows])).tolist()
    return measure.last_epoch(min(int(table["epochs"].values[code]) for code in codes))


def _last_epoch(at: str | AtEpoch | AtEpochs) -> int:
    return at.epoch if isinstance(at, AtEpoch) else at.epochs[1] if isinstance(at, AtEpochs) else 0


def _told(pattern: Pattern) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in pattern.items())


def _value(value: object) -> str:
    return f"{{ {_told(value)} }}" if isinstance(value, dict) else str(value)
