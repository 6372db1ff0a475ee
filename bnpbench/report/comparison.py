"""Two runs beside each other: what became slower, dearer or less accurate, and what cannot be judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bnpbench.errors import NothingToCompare
from bnpbench.report.outcome import Change, Comparison
from bnpbench.report.pair import Pair, hardware_differences
from bnpbench.report.view import Cell, View, views
from bnpbench.results import Results

_ACROSS = "--across-machines compares what does not depend on it"


def compare(
    base: Results | None, new: Results, *, max_slowdown: float = 0.05, across_machines: bool = False
) -> Comparison:
    """Compares the cells that two runs share.

    A count is worse when it is higher (those that torch decides, only under one torch), the accuracy of a seeded CPU
    run when it is lower by more than ``pair.ACCURACY_TOLERANCE``, a status when the cell ended less well; a number that
    is no more there is worse too. What is better is an improvement, never a regression. A time is worse when its ratio
    is above 1 + ``max_slowdown`` and its whole interval too. Times are judged per method, batch size and setting, over
    seeds and epochs, on one kind of machine only, and where no change between two values of ``MEASUREMENT`` can have
    moved them. Where a method took turns with vanilla in both runs, its ratio to vanilla is judged: between two runs a
    machine drifts by more than the interval of either shows, and the ratio is free of that. Elsewhere the seconds are
    judged.

    Args:
        base: the baseline; None or without a measured cell: the outcome is ``no baseline``.
        new: the new run.
        max_slowdown: share, 0.05 for 5 %.
        across_machines: with other hardware, compare what does not depend on it and print ratios unjudged.

    Raises:
        NothingToCompare: no final cell of a suite was measured in ``new``, or the hardware differs.
    """
    right = _measured(new)
    if not right:
        raise NothingToCompare(
            "of the final cells that suites name, nothing was measured in the new results; the report has the reasons"
        )
    left = _measured(base) if base is not None else []
    if not left:
        return Comparison(
            "no baseline", only_right=tuple(_names(right)), notes=("there is no baseline to compare with",)
        )
    changes: list[Change] = []
    shared, notes, seen = list[str](), list[str](), set[tuple[int, str]]()
    partners, refused = _partners(left, right, across_machines)
    for one, other in partners:
        pair = Pair(one, other, max_slowdown)
        if pair.keys:
            notes += [note for note in pair.notes() if note not in notes]
        changes += (found := pair.changes())
        notes += pair.drift(found)
        shared += [_name(one, one.by_key[key]) for key in pair.keys]
        seen |= {(id(view), key) for view in (one, other) for key in pair.keys}
    only = [
        [_name(v, c) for v in side for c in v.cells if c.row and (id(v), c.key) not in seen] for side in (left, right)
    ]
    outcome: Any = "changed" if any(change.judgement == "worse" for change in changes) else "same"
    if not shared:
        outcome, notes = "nothing shared", ["no cell was measured in both"]
    return Comparison(outcome, tuple(changes), tuple(shared), tuple(only[0]), tuple(only[1]), (*refused, *notes))


def _measured(results: Results) -> list[View]:
    return [view for view in views(results) if any(cell.row for cell in view.cells)]


def _names(side: Iterable[View]) -> Iterable[str]:
    return (_name(view, cell) for view in side for cell in view.cells if cell.row)


def _name(view: View, cell: Cell) -> str:
    return f"{view.suite}: {cell.label}, N = {cell.batch_size}, seed {cell.seed} ({cell.key})"


def _partners(
    left: Sequence[View], right: Sequence[View], across_machines: bool
) -> tuple[list[tuple[View, View]], list[str]]:
    """For each new view the base's of the same suite: same environment, else same hardware, else any if allowed.

    Returns:
        The pairs, and a warning for each suite with new results that have none because of their hardware.

    Raises:
        NothingToCompare: no suite has a pair, because of the hardware.
    """
    found, refused = [], dict[str, list[str]]()
    for new in right:
        bases = [view for view in left if view.suite == new.suite]
        fields = {id(base): hardware_differences(base, new) for base in bases}
        same = [base for base in bases if base.environment["id"] == new.environment["id"]]
        alike = [base for base in bases if not fields[id(base)]]
        chosen = same or sorted(alike, key=_latest) or (bases if across_machines else [])
        if chosen:
            found.append((chosen[-1], new))
        elif bases:
            refused.setdefault(new.suite, []).extend(difference for base in bases for difference in fields[id(base)])
    if not found and refused:
        every = [difference for suite in refused.values() for difference in suite]
        raise NothingToCompare(f"{_elsewhere(every)}: times are not comparable; {_ACROSS}")
    return found, [
        f"warning: suite {suite} was {_elsewhere(differences)}: not compared; {_ACROSS}"
        for suite, differences in refused.items()
    ]


def _elsewhere(differences: Iterable[str]) -> str:
    return f"measured on other hardware ({'; '.join(dict.fromkeys(differences))})"


def _latest(view: View) -> str:
    return max((str(cell.row["finished"]) for cell in view.cells if cell.row), default="")
