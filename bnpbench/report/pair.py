"""One suite in two environments: what differs between them, and how each difference is judged."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bnpbench.measure.measurement import moved_seconds
from bnpbench.report.claims import paired_times
from bnpbench.report.metrics import NoDataError, times
from bnpbench.report.outcome import METRIC, Change, Judgement
from bnpbench.report.view import Cell, View
from bnpbench.results import FINISHED, told
from bnpbench.statistics.bootstrap import change_interval
from bnpbench.statistics.intervals import Estimate
from bnpbench.text import dash, fixed

ACCURACY_TOLERANCE = 0.02  # of seeded CPU runs: rounding differs between torch versions and grows over epochs
FLOPS = ("flops_model", "flops_method_predicted", "flops_method_counted", "parameters")
UNDER_ONE_TORCH = ("flops_method_executed", "operators_per_step", "kernels_per_step")
SECONDS = "seconds per epoch"
_SIDES = ("in the base", "in the new results")
_RANKS = {"ok": 2, **dict.fromkeys(FINISHED - {"ok"}, 1)}  # of a status: the higher the better; others are failures
_IN_TURN, _OTHERWISE = "in turn", "measured otherwise"
# Settings in which a method and the vanilla that it is compared with are alike; others may go with the method.
_PLACE = ("dataset", "network", "batch_size", "seed", "engine", "precision", "memory_format", "device", "threads")


class Pair:
    """One suite in the base's environment and in the new one."""

    def __init__(self, base: View, new: View, max_slowdown: float) -> None:
        self.base, self.new, self.max_slowdown = base, new, max_slowdown
        self.keys = [c.key for c in base.cells if c.row and (other := new.by_key.get(c.key)) is not None and other.row]
        self.same_machine = not hardware_differences(base, new)
        torches = [_facts(view, "software").get("torch") for view in (base, new)]
        self.measurements = [view.environment.get("measurement") for view in (base, new)]
        self.moved = moved_seconds(*self.measurements)
        self.same_torch = torches[0] == torches[1] and torches[0] is not None

    def notes(self) -> Iterable[str]:
        """What else than the code may have moved the numbers, and how they are judged."""
        for name in ("hardware", "software"):
            yield from (f"{name} differs: {d}" for d in _differences(_facts(self.base, name), _facts(self.new, name)))
        if self.measurements[0] != self.measurements[1]:
            effect = f"times are not judged: {self.moved}" if self.moved else "what changed leaves seconds alone"
            yield f"measurement differs: {' and '.join(map(told, self.measurements))}; {effect}"
        for name in ("bnpbench", "commit"):
            one, other = (
                ", ".join(sorted({str(view.by_key[key].row[name]) for key in self.keys} - {"None"}))
                for view in (self.base, self.new)
            )
            if one != other:
                yield f"{name} differs: {one or dash()} and {other or dash()}"
        yield (
            "a count is worse when it is higher, the accuracy of a seeded CPU run when it is lower by more than "
            f"{ACCURACY_TOLERANCE}"
        )
        if not self.same_torch:
            yield f"not judged under another torch: {', '.join(UNDER_ONE_TORCH)}"
        if self.same_machine and self.moved:
            yield f"{_OTHERWISE}: times are shown and not judged"
        elif self.same_machine:
            yield f"a time is worse when its ratio and its whole 95 % interval are above {1 + self.max_slowdown:g}"
            yield f"{_IN_TURN}: methods that took turns with vanilla are judged by their ratios to it, not by seconds"
        else:
            yield "another machine: seconds are not compared, ratios to vanilla are shown and not judged"

    def changes(self) -> list[Change]:
        """Status, counts, accuracy, then times."""
        cells = [(self.base.by_key[key], self.new.by_key[key]) for key in self.keys]
        found = [change for one, other in cells for change in self._cell(one, other)]
        groups: dict[tuple[str, int, str], list[tuple[Cell, Cell]]] = {}
        for one, other in cells:
            if one.ok and other.ok:
                groups.setdefault((other.label, other.batch_size, _without_seed(other)), []).append((one, other))
        for pairs in groups.values():
            found += self._times(pairs)
        return found

    def drift(self, changes: Sequence[Change]) -> Iterable[str]:
        """A warning where all that took turns became slower together, which their ratios cannot show."""
        together = [change.change for change in changes if change.remark == _IN_TURN and change.change]
        slower = [e.value for e in together if e.low is not None and e.low > 1 + self.max_slowdown]
        if together and len(slower) == len(together):
            yield (
                f"warning: everything became slower, by a factor of {min(slower):.2f} to {max(slower):.2f}: the "
                "machine, or what all methods share; measure both again, in turn, to tell which"
            )

    def _cell(self, one: Cell, other: Cell) -> Iterable[Change]:
        change = _maker(self.new, other, f"seed {other.seed}")
        if one.status != other.status:
            judgement = _judgement(_RANKS.get(one.status, 0), _RANKS.get(other.status, 0), equal="differs")
            yield change("status", "status", one.status, other.status, judgement, str(other.row["message"] or ""))
            return
        for name in (*FLOPS, *UNDER_ONE_TORCH):
            before, after = one.row[name], other.row[name]
            if before is None and after is None:
                continue
            judgement, remark = ("not judged", "another torch")
            if name in FLOPS or self.same_torch:
                judgement, remark = _judged_or_missing(before, after, lambda one, other: _judgement(other, one))
            yield change("counts", name, _count(before), _count(after), judgement, remark)
        yield from self._accuracy(one, other, change)

    def _accuracy(self, one: Cell, other: Cell, change: Callable[..., Change]) -> Iterable[Change]:
        """At the last epoch that both have: a suite with an ``interval`` decides how many there are as it runs."""
        series = [view.series(cell, "test_accuracy") for view, cell in ((self.base, one), (self.new, other))]
        if not one.ok or not any(series):
            return
        shared = series[0].keys() & series[1].keys()
        before, after = (shares[max(shared or shares)] if shares else None for shares in series)
        lasts = [max(shares, default=0) for shares in series]
        judgement, remark = _judged_or_missing(before, after, _accuracy_judgement)
        if all(lasts) and not shared:
            judgement, remark = "not judged", f"no epoch in both, of {lasts[0]} and {lasts[1]}"
        elif all(lasts) and lasts[0] != lasts[1]:
            remark = f"at epoch {max(shared)}, of {lasts[0]} and {lasts[1]}"
        if not one.row["device"] == other.row["device"] == "cpu":
            judgement, remark = "not judged", "; ".join(filter(None, ("not a CPU run", remark)))
        texts = [dash() if share is None else fixed(share, 4) for share in (before, after)]
        yield change("accuracy", "test_accuracy", *texts, judgement, remark)

    def _times(self, pairs: Sequence[tuple[Cell, Cell]]) -> Iterable[Change]:
        change = _maker(self.new, pairs[0][1], f"{len(pairs)} seed{'s' if len(pairs) > 1 else ''}")
        in_turn = all(_beside_vanilla(self.base, one) and _beside_vanilla(self.new, other) for one, other in pairs)
        unjudged = "another machine" if not self.same_machine else _OTHERWISE if self.moved else ""
        if self.same_machine:
            samples = [(_seconds(self.base, one), _seconds(self.new, other)) for one, other in pairs]
            yield from self._judged(change, SECONDS, samples, unjudged or (_IN_TURN if in_turn else ""))
        if pairs[0][1].kind != "vanilla":
            samples = [(_to_vanilla(self.base, one), _to_vanilla(self.new, other)) for one, other in pairs]
            yield from self._judged(change, "ratio to vanilla", samples, unjudged)

    def _judged(
        self,
        change: Callable[..., Change],
        what: str,
        samples: Sequence[tuple[list[float], list[float]]],
        unjudged: str,
    ) -> Iterable[Change]:
        """One change; ``unjudged`` is the reason why it is only shown, if it is."""
        whole = [(before, after) for before, after in samples if before and after]
        lacking = [f"no time {where}" for side, where in enumerate(_SIDES) if any(not both[side] for both in samples)]
        if not whole:
            if what == SECONDS or any(any(both) for both in samples):  # else there is no vanilla beside it
                yield change(what, METRIC, dash(), dash(), "not judged", ", ".join(lacking))
            return
        estimate = change_interval([before for before, _ in whole], [after for _, after in whole])
        judgement, remark = ("not judged", unjudged) if unjudged else self._judgement(estimate)
        if lacking:
            remark = "; ".join(filter(None, (remark, f"{len(whole)} of {len(samples)} seeds: {', '.join(lacking)}")))
        sides = ([number for pair in whole for number in pair[side]] for side in (0, 1))
        texts = [fixed(statistics.median(side), 4) for side in sides]
        yield change(what, METRIC, *texts, judgement, remark, estimate)

    def _judgement(self, estimate: Estimate) -> tuple[Judgement, str]:
        if estimate.low is None or estimate.high is None:
            return "not judged", f"{estimate.reason} epochs"
        limit = 1 + self.max_slowdown
        if estimate.low > limit:
            return "worse", ""
        return ("better", "") if estimate.high < 1 / limit else ("within", "")


def _judgement(before: float, after: float, equal: Judgement = "same") -> Judgement:
    """Of a number that is better where it is higher; ``equal`` where it is not."""
    return equal if before == after else "better" if after > before else "worse"


def _accuracy_judgement(before: float, after: float) -> Judgement:
    """NaN is worse than any number."""
    if abs(after - before) <= ACCURACY_TOLERANCE:
        return "same" if before == after else "within"
    one, other = (-math.inf if math.isnan(share) else share for share in (before, after))
    return _judgement(one, other)


def _judged_or_missing(
    before: float | None, after: float | None, judge: Callable[[float, float], Judgement]
) -> tuple[Judgement, str]:
    """Judgement and remark; a number that is no more there is worse, and one that is new cannot be judged."""
    if before is None:
        return "not judged", f"missing {_SIDES[0]}"
    return ("worse", f"missing {_SIDES[1]}") if after is None else (judge(before, after), "")


def hardware_differences(base: View, new: View) -> list[str]:
    """What differs between the machines of two views, each as text; empty for the same machine."""
    one, other = _facts(base, "hardware"), _facts(new, "hardware")
    if not one or not other:
        return ["hardware: unknown on one side"]
    return _differences(one, other)


def _facts(view: View, name: str) -> Mapping[str, Any]:
    facts = view.environment.get(name)
    return facts if isinstance(facts, dict) else {}


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys((*one, *other))
    return [
        f"{name}: {told(one.get(name))} and {told(other.get(name))}"
        for name in names
        if one.get(name) != other.get(name)
    ]


def _maker(view: View, cell: Cell, group: str) -> Callable[..., Change]:
    def make(
        what: str,
        quantity: str,
        base: str,
        new: str,
        judgement: Judgement,
        remark: str = "",
        change: Estimate | None = None,
    ) -> Change:
        return Change(
            what, view.suite, cell.label, cell.batch_size, group, quantity, base, new, change, judgement, remark
        )

    return make


def _without_seed(cell: Cell) -> str:
    return repr(sorted((name, repr(value)) for name, value in cell.settings.items() if name != "seed"))


def _seconds(view: View, cell: Cell) -> list[float]:
    try:
        return [seconds for seconds in times(view, cell, METRIC).values() if seconds]
    except NoDataError:
        return []


def _to_vanilla(view: View, cell: Cell) -> list[float]:
    """Ratios to the vanilla cell that took turns with this one, epoch by epoch."""
    base = next((other for other in _beside(view, cell) if other.kind == "vanilla"), None)
    if base is None:
        return []
    try:
        left, right = {"": times(view, cell, METRIC)}, {"": times(view, base, METRIC)}
    except NoDataError:
        return []
    pairs = paired_times(view, {"": (cell, base)}, left, right)
    return [one / other for one, other in (pairs[0] if pairs else ()) if one and other]


def _beside_vanilla(view: View, cell: Cell) -> bool:
    """Whether the cell took turns with vanilla, or is vanilla and took turns with another."""
    others = _beside(view, cell)
    return bool(others) and any(other.kind == "vanilla" for other in (cell, *others))


def _beside(view: View, cell: Cell) -> list[Cell]:
    """The cells that took turns with this one and differ from it in nothing but the method and what goes with it."""
    return [
        other
        for other in view.cells
        if other.ok
        and view.paired(cell, other)
        and all(cell.settings.get(name) == other.settings.get(name) for name in _PLACE)
    ]


def _count(value: int | None) -> str:
    return dash() if value is None else f"{value:,}"
