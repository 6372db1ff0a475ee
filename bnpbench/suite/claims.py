"""Which cells a claim compares, and a reference stands beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bnpbench.suite.cells import Cell
from bnpbench.suite.document import AtEpoch, AtEpochs, Claim, Document, Measure, Pattern, Reference, figure_fault
from bnpbench.suite.expansion import merged
from bnpbench.suite.explaining import closest
from bnpbench.suite.matching import Column, Table, check_pattern, combinations, number_of_combinations
from bnpbench.suite.metrics import METRICS
from bnpbench.suite.options import SETTINGS, as_table
from bnpbench.suite.positions import Path
from bnpbench.suite.reading import Source

MAX_COMBINATIONS = 2000


@dataclass(frozen=True)
class Combination:
    """One verdict of a claim: the cells of both sides for each seed.

    Attributes:
        where: what both sides have in common, one alternative of each list in the claim's ``where``.
        left, right: seed → cells; right is empty where the claim has none.
    """

    where: Pattern
    left: dict[int, list[Cell]]
    right: dict[int, list[Cell]]


class Pick:
    """Picks from some cells those that a claim or a reference speaks of."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self.table = Table(len(cells), self._column)

    def combinations(self, claim: Claim) -> list[Combination]:
        """A claim's verdicts, in the order of its ``where``."""
        return [
            Combination(
                where,
                self._by_seed(side_pattern(where, claim.left.pattern)),
                self._by_seed(side_pattern(where, claim.right.pattern)) if claim.right else {},
            )
            for where in combinations(claim.where)
        ]

    def matching(self, pattern: Pattern) -> list[Cell]:
        """The cells that a pattern picks."""
        return [self.cells[row] for row in self.table.matching(pattern).nonzero()[0].tolist()]

    def _by_seed(self, pattern: Pattern) -> dict[int, list[Cell]]:
        found: dict[int, list[Cell]] = {}
        for cell in self.matching(pattern):
            found.setdefault(cell.settings.seed, []).append(cell)
        return found

    def _column(self, name: str) -> Column:
        values = [cell.data[name] for cell in self.cells]
        column = Column(len(values), values[0])
        column.codes[:] = [column.code(value) for value in values]
        return column


def side_pattern(where: Pattern, side: Pattern) -> Pattern:
    """A side's settings over those of ``where``."""
    wide = {name: as_table(SETTINGS[name], value) for name, value in where.items()}
    return {**wide, **{n: merged(wide.get(n), as_table(SETTINGS[n], v)) for n, v in side.items()}}


def check_claims(source: Source, document: Document, cells: Sequence[Cell]) -> None:
    """Raises SuiteError for a claim or a reference that no run of these cells could answer."""
    pick = Pick(cells)
    budget = MAX_COMBINATIONS
    for number, reference in enumerate(document.reference):
        place: Path = ("reference", number)
        tuned = document.select.over if document.select else None
        if reference.metric != tuned:
            _check_figure(source, reference, place)
        _check_patterns(source, {"cell": reference.cell}, place)
        if not pick.table.matching(reference.cell).any():
            message, near = pick.table.why_none(reference.cell)
            raise source.error(f"matches no cell: {message}", (*place, "cell"), near)
    for number, claim in enumerate(document.claim):
        place = ("claim", number)
        _check_figure(source, claim, place)
        sides = {"left": claim.left.pattern, "right": claim.right.pattern if claim.right else {}}
        _check_patterns(source, {"where": claim.where, **sides}, place)
        budget -= number_of_combinations(claim.where)
        if budget < 0:
            raise source.error(f"the claims have more than {MAX_COMBINATIONS:,} verdicts", (*place, "where"))
        for combination in pick.combinations(claim):
            _check_combination(source, document.measure, pick, claim, combination, place)


def _check_figure(source: Source, figure: Claim | Reference, place: Path) -> None:
    if figure.metric not in METRICS:
        near = closest(figure.metric, METRICS)
        message = "unknown metric; a metric is a numeric column of the results, or seconds_to, epochs_to, reached"
        raise source.error(f"{message}", (*place, "metric"), near)
    fault = figure_fault(figure)
    if fault:
        raise source.error(fault[1], (*place, *fault[0].split(".")))


def _check_patterns(source: Source, patterns: dict[str, Pattern], place: Path) -> None:
    for name, pattern in patterns.items():
        fault = check_pattern(pattern)
        if fault:
            raise source.error(fault[1], (*place, name, *fault[0]), fault[2])


def _check_combination(
    source: Source, measure: Measure, pick: Pick, claim: Claim, combination: Combination, place: Path
) -> None:
    """Each side has exactly one cell for each seed, and both have the same seeds."""
    told = "" if not combination.where else f" where {_told(combination.where)}"
    sides: list[tuple[Literal["left", "right"], dict[int, list[Cell]]]] = [("left", combination.left)]
    if claim.right:
        sides.append(("right", combination.right))
    for name, by_seed in sides:
        side = claim.left if name == "left" or claim.right is None else claim.right
        if not by_seed:
            message, near = pick.table.why_none(side_pattern(combination.where, side.pattern))
            raise source.error(f"picks no cell{told}: {message}", (*place, name), near)
        for seed, cells in by_seed.items():
            if len(cells) > 1:
                differ = _differences(cells)
                message = f"picks {len(cells)} cells of seed {seed}{told}; one is needed, so say which {differ}"
                raise source.error(message, (*place, name))
        last = _last_epoch(claim.at_of(name))
        epochs = min(cells[0].settings.epochs for cells in by_seed.values())
        limit = epochs if measure.interval is None else max(epochs, measure.max_epochs or last)
        if last > limit:
            key = (*place, name, "at") if side.at else (*place, "at")
            raise source.error(f"epoch {last} is after the last one, {limit}", key)
    if claim.right and combination.left.keys() != combination.right.keys():
        left, right = (", ".join(map(str, sorted(s))) for s in (combination.left, combination.right))
        raise source.error(f"left has the seeds {left} and right {right}{told}; they must agree", (*place, "right"))


def _last_epoch(at: str | AtEpoch | AtEpochs) -> int:
    return at.epoch if isinstance(at, AtEpoch) else at.epochs[1] if isinstance(at, AtEpochs) else 0


def _differences(cells: Sequence[Cell]) -> str:
    """The settings in which cells differ."""
    data = [cell.data for cell in cells]
    return " and ".join(name for name in SETTINGS if any(d[name] != data[0][name] for d in data))


def _told(pattern: Any) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in pattern.items())


def _value(value: Any) -> str:
    return f"{{ {_told(value)} }}" if isinstance(value, dict) else str(value)
