"""Two runs beside each other: what became slower, dearer or less accurate, and what cannot be judged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from bnpbench.errors import NothingToCompare
from bnpbench.measure.measurement import moved_seconds
from bnpbench.records.documents import Hardware, Software
from bnpbench.records.rows import GAIN, METRICS
from bnpbench.records.rows import metric as known
from bnpbench.registry import baselines
from bnpbench.report.comparison import IN_TURN, METRIC, Change, Comparison, Judgement
from bnpbench.report.data import Cell, View, views
from bnpbench.report.query import disturbances, paired_times, times
from bnpbench.results import FINISHED, Results
from bnpbench.statistics.intervals import Estimate
from bnpbench.statistics.times import Kind, processes_interval, unpaired_interval
from bnpbench.suite import differing, told
from bnpbench.suite.settings import having
from bnpbench.text import dash, fixed, number_of

ACCURACY_TOLERANCE = 0.02  # of seeded CPU runs: rounding differs between torch versions and grows over epochs
UNDER_ONE_TORCH = [name for name, metric in METRICS.items() if metric.judged == "under one torch"]
ALWAYS = sorted(
    (name for name, metric in METRICS.items() if metric.judged == "always"),
    key=lambda name: METRICS[name].unit != "FLOP",  # operations come first
)
SECONDS = "seconds per epoch"
_ACROSS = "--across-machines compares what does not depend on it"
_SIDES = ("in the base", "in the new results")
_RANKS = {"ok": 2, **dict.fromkeys(FINISHED - {"ok"}, 1)}  # of a status: the higher the better; others are failures
_OTHERWISE = "measured otherwise"


def compare(
    base: Results | None, new: Results, *, max_slowdown: float = 0.05, across_machines: bool = False
) -> Comparison:
    """Compares the cells that two runs share.

    A count is worse when it is higher (those that torch decides, only under one torch), the accuracy of a seeded CPU
    run, and a metric of its own, when it is less good by more than ``ACCURACY_TOLERANCE`` (above 1 by more than this
    share of it), a status when the cell ended less well; a number that is no more there is worse too. What is better is
    an improvement, never a regression. A time is worse when its ratio is above 1 + ``max_slowdown`` and its whole
    interval too. Times are judged per method, batch size and setting, over seeds and epochs, on one kind of machine
    only, and where no change between two values of ``MEASUREMENT`` can have moved them. Where a method took turns with
    vanilla in both runs, its ratio to vanilla is judged: between two runs a machine drifts by more than the interval of
    either shows, and the ratio is free of that. Elsewhere the seconds are judged.

    Args:
        base: the baseline; None or without a measured cell: the outcome is ``no baseline``.
        new: the new run.
        max_slowdown: share, 0.05 for 5 %.
        across_machines: with other hardware, compare what does not depend on it and print ratios unjudged.

    Returns:
        What changed, judged, with an exit code.

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
    shared, notes, unlike, seen = list[str](), list[str](), list[str](), set[tuple[int, str]]()
    partners, refused = _partners(left, right, across_machines)
    for one, other in partners:
        pair = Pair(one, other, max_slowdown)
        if pair.cells:
            notes += [note for note in pair.notes() if note not in notes]
        unlike += [note for note in pair.unlike() if note not in unlike]
        changes += (found := pair.changes())
        notes += pair.drift(found)
        shared += [_name(one, cell) for cell, _ in pair.cells]
        seen |= {(id(view), both[side].key) for side, view in enumerate((one, other)) for both in pair.cells}
    only = [
        [_name(v, c) for v in side for c in v.cells if c.row and (id(v), c.key) not in seen] for side in (left, right)
    ]
    worse = any(change.judgement == "worse" for change in changes)
    outcome: Literal["changed", "same", "nothing shared"] = "changed" if worse else "same"
    if not shared:
        outcome, notes = "nothing shared", ["no cell was measured in both"]
    return Comparison(
        outcome, tuple(changes), tuple(shared), tuple(only[0]), tuple(only[1]), (*refused, *notes, *unlike)
    )


def _measured(results: Results) -> list[View]:
    return [view for view in views(results) if any(cell.row for cell in view.cells)]


def _names(side: Iterable[View]) -> Iterable[str]:
    return (_name(view, cell) for view in side for cell in view.cells if cell.row)


def _name(view: View, cell: Cell) -> str:
    place = (cell.label, f"N = {cell.batch_size}", view.titles.get(cell.key, ""), f"seed {cell.seed}")
    return f"{view.suite}: {', '.join(filter(None, place))} ({cell.key})"


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
        same = [base for base in bases if base.id == new.id]
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


@dataclass(frozen=True)
class _Where:
    """Whose numbers are compared, and the changes made there."""

    suite: str
    cell: Cell
    group: str

    def change(
        self,
        what: str,
        quantity: str,
        base: str,
        new: str,
        judgement: Judgement,
        remark: str = "",
        ratio: Estimate | None = None,
    ) -> Change:
        place = (self.suite, self.cell.label, self.cell.batch_size, self.group)
        return Change(what, *place, quantity, base, new, ratio, judgement, remark)


class Pair:
    """One suite in the base's environment and in the new one."""

    def __init__(self, base: View, new: View, max_slowdown: float) -> None:
        self.base, self.new, self.max_slowdown = base, new, max_slowdown
        self.cells = list(_matched(base, new))
        self.same_machine = not hardware_differences(base, new)
        torches = [view.environment.software.torch for view in (base, new)]
        self.measurements = [view.environment.measurement for view in (base, new)]
        self.moved = moved_seconds(*self.measurements)
        self.same_torch = torches[0] == torches[1] and torches[0] is not None

    def notes(self) -> Iterable[str]:
        """What else than the code may have moved the numbers, and how they are judged."""
        sides = self.base.environment, self.new.environment
        yield from (f"hardware differs: {d}" for d in _differences(*(side.hardware for side in sides)))
        yield from (f"software differs: {d}" for d in _differences(*(side.software for side in sides)))
        if self.measurements[0] != self.measurements[1]:
            effect = f"times are not judged: {self.moved}" if self.moved else "what changed leaves seconds alone"
            yield f"measurement differs: {' and '.join(map(told, self.measurements))}; {effect}"
        for name in ("bnpbench", "commit"):
            one, other = (
                ", ".join(sorted({str(both[side].row[name]) for both in self.cells} - {"None"})) for side in (0, 1)
            )
            if one != other:
                yield f"{name} differs: {one or dash()} and {other or dash()}"
        sums = [{told(both[side].settings.get("plugins")) for both in self.cells} for side in (0, 1)]
        if sums[0] != sums[1]:
            yield "the suite's plugins differ: their cells are matched by all other settings"
        yield (
            "a count is worse when it is higher, the accuracy of a seeded CPU run when it is lower by more than "
            f"{ACCURACY_TOLERANCE}"
        )
        if not self.same_torch:
            yield f"not judged under another torch: {', '.join(UNDER_ONE_TORCH)}"
        if self.same_machine and self.moved:
            yield f"{_OTHERWISE}: times are shown and not judged"
        elif self.same_machine:
            yield (
                f"a time is worse when its ratio and its whole 95 % interval are above {1 + self.max_slowdown:g}, "
                "within when the interval reaches no farther on either side, undecided otherwise"
            )
            yield f"{IN_TURN}: methods that took turns with vanilla are judged by their ratios to it, not by seconds"
        else:
            yield "another machine: seconds are not compared, ratios to vanilla are shown and not judged"

    def unlike(self) -> Iterable[str]:
        """In which settings cells differ that are called alike, and are compared with none for that."""
        matched = {both[side].key for both in self.cells for side in (0, 1)}
        lone: list[dict[tuple[str, int, int], Cell]] = [
            {(c.label, c.batch_size, c.seed): c for c in view.cells if c.row and c.key not in matched}
            for view in (self.base, self.new)
        ]
        found = Counter[str]()
        for place in lone[0].keys() & lone[1].keys():
            both = [side[place].settings for side in lone]
            found.update(f"{path}: {told(one)} and {told(other)}" for path, (one, other) in differing(both, ()).items())
        for text, count in sorted(found.items()):
            yield f"not compared, for a setting differs ({number_of(count, 'cell')}): {text}"

    def changes(self) -> list[Change]:
        """Status, counts, accuracy, then times."""
        found = [change for one, other in self.cells for change in self._cell(one, other)]
        groups: dict[tuple[str, int, str], list[tuple[Cell, Cell]]] = {}
        for one, other in self.cells:
            if one.ok and other.ok:
                groups.setdefault((other.label, other.batch_size, _without_seed(other)), []).append((one, other))
        for pairs in groups.values():
            found += self._times(pairs)
        return found

    def drift(self, changes: Sequence[Change]) -> Iterable[str]:
        """A warning where all that took turns became slower together, which their ratios cannot show."""
        together = [change.change for change in changes if change.remark == IN_TURN and change.change]
        slower = [e.value for e in together if e.low is not None and e.low > 1 + self.max_slowdown]
        if together and len(slower) == len(together):
            yield (
                f"warning: everything became slower, by a factor of {min(slower):.2f} to {max(slower):.2f}: the "
                "machine, or what all methods share; measure both again, in turn, to tell which"
            )

    def _cell(self, one: Cell, other: Cell) -> Iterable[Change]:
        where = self._where(other, f"seed {other.seed}")
        if one.status != other.status:
            judgement = _judgement(_RANKS.get(one.status, 0), _RANKS.get(other.status, 0), equal="differs")
            yield where.change("status", "status", one.status, other.status, judgement, other.text("message"))
            return
        for name in (*ALWAYS, *UNDER_ONE_TORCH):
            before, after = one.count(name), other.count(name)
            if before is None and after is None:
                continue
            judgement, remark = ("not judged", "another torch")
            if name in ALWAYS or self.same_torch:
                judgement, remark = _judged_or_missing(before, after, lambda one, other: _judgement(other, one))
            yield where.change("counts", name, _count(before), _count(after), judgement, remark)
        own = {name: None for view, cell in ((self.base, one), (self.new, other)) for name in view.epochs.own(cell.key)}
        for name in (GAIN, *own):
            yield from self._score(name, one, other, where)

    def _where(self, cell: Cell, seeds: str) -> _Where:
        return _Where(self.new.suite, cell, ", ".join(filter(None, (self.new.titles.get(cell.key), seeds))))

    def _score(self, metric: str, one: Cell, other: Cell, where: _Where) -> Iterable[Change]:
        """At the last epoch that both have: a suite with an ``interval`` decides how many there are as it runs."""
        series = [view.series(cell, metric) for view, cell in ((self.base, one), (self.new, other))]
        if not one.ok or not any(series):
            return
        shared = series[0].keys() & series[1].keys()
        before, after = (shares[max(shared or shares)] if shares else None for shares in series)
        lasts = [max(shares, default=0) for shares in series]
        judgement, remark = _judged_or_missing(before, after, partial(_score_judgement, metric))
        if all(lasts) and not shared:
            judgement, remark = "not judged", f"no epoch in both, of {lasts[0]} and {lasts[1]}"
        elif all(lasts) and lasts[0] != lasts[1]:
            remark = f"at epoch {max(shared)}, of {lasts[0]} and {lasts[1]}"
        if not one.row["device"] == other.row["device"] == "cpu":
            judgement, remark = "not judged", "; ".join(filter(None, ("not a CPU run", remark)))
        texts = [dash() if share is None else fixed(share, 4) for share in (before, after)]
        yield where.change("accuracy" if metric == GAIN else "metric", metric, texts[0], texts[1], judgement, remark)

    def _times(self, pairs: Sequence[tuple[Cell, Cell]]) -> Iterable[Change]:
        where = self._where(pairs[0][1], f"{len(pairs)} seed{'s' if len(pairs) > 1 else ''}")
        vanilla = pairs[0][1].kind == baselines()[0]
        ratios = (
            [] if vanilla else [(_to_vanilla(self.base, one), _to_vanilla(self.new, other)) for one, other in pairs]
        )
        in_turn = all(_beside_vanilla(self.base, one) and _beside_vanilla(self.new, other) for one, other in pairs)
        in_turn = in_turn and (vanilla or any(any(both) for both in ratios))
        unjudged = "another machine" if not self.same_machine else _OTHERWISE if self.moved else ""
        unjudged = unjudged or _disturbed(pairs)
        if self.same_machine:
            samples = [(_seconds(self.base, one), _seconds(self.new, other)) for one, other in pairs]
            yield from self._judged(where, SECONDS, samples, unjudged or (IN_TURN if in_turn else ""))
        if not vanilla:
            yield from self._judged(where, "ratio to vanilla", ratios, unjudged)

    def _judged(
        self,
        where: _Where,
        what: str,
        samples: Sequence[tuple[list[float], list[float]]],
        unjudged: str,
    ) -> Iterable[Change]:
        """One change; ``unjudged`` is the reason why it is only shown, if it is."""
        whole = [(before, after) for before, after in samples if before and after]
        lacking = [f"no time {name}" for side, name in enumerate(_SIDES) if any(not both[side] for both in samples)]
        if not whole:
            if what == SECONDS or any(any(both) for both in samples):  # else there is no vanilla beside it
                yield where.change(what, METRIC, dash(), dash(), "not judged", ", ".join(lacking))
            return
        kind: Kind = "times" if what == SECONDS else "ratios"
        sides = [[both[side] for both in whole] for side in (0, 1)]
        estimate = unpaired_interval(sides[1], sides[0], ratio=True, kind=kind)
        judgement, remark = self._judgement(estimate)
        if unjudged:
            judgement, remark = "not judged", unjudged
        if lacking:
            remark = "; ".join(
                filter(None, (remark, f"{len(whole)} of {number_of(len(samples), 'seed')}: {', '.join(lacking)}"))
            )
        texts = [fixed(processes_interval(side, kind).value, 4) for side in sides]
        yield where.change(what, METRIC, texts[0], texts[1], judgement, remark, estimate)

    def _judgement(self, estimate: Estimate) -> tuple[Judgement, str]:
        limit = 1 + self.max_slowdown
        if estimate.low is None or estimate.high is None:
            return "undecided", estimate.reason
        if estimate.low > limit:
            return "worse", ""
        if estimate.high < 1 / limit:
            return "better", ""
        if 1 / limit <= estimate.low and estimate.high <= limit:
            return "within", ""
        seen = limit * estimate.value / estimate.low - 1
        return "undecided", f"a slow-down would have been seen from {seen:.0%} on"


def _judgement(before: float, after: float, equal: Judgement = "same") -> Judgement:
    """Of a number that is better where it is higher; ``equal`` where it is not."""
    return equal if before == after else "better" if after > before else "worse"


def _score_judgement(metric: str, before: float, after: float) -> Judgement:
    """NaN is worse than any number; what is above 1 may move by a share of itself."""
    if math.isfinite(before) and abs(after - before) <= ACCURACY_TOLERANCE * max(1.0, abs(before)):
        return "same" if before == after else "within"
    sign = known(metric).sign
    one, other = (-math.inf if math.isnan(number) else sign * number for number in (before, after))
    return _judgement(one, other)


def _judged_or_missing(
    before: float | None, after: float | None, judge: Callable[[float, float], Judgement]
) -> tuple[Judgement, str]:
    """Judgement and remark; a number that is no more there is worse, and one that is new cannot be judged."""
    if before is None:
        return "not judged", f"missing {_SIDES[0]}"
    return ("worse", f"missing {_SIDES[1]}") if after is None else (judge(before, after), "")


def _matched(base: View, new: View) -> Iterator[tuple[Cell, Cell]]:
    """The cells of both sides that were measured: of one key, or that differ in nothing but the plugins' hashes."""
    others = {_but_plugins(cell): cell for cell in base.cells if cell.row and cell.settings.get("plugins")}
    for cell in new.cells:
        one = base.by_key.get(cell.key) or others.get(_but_plugins(cell))
        if cell.row and one is not None and one.row:
            yield one, cell


def _but_plugins(cell: Cell) -> str:
    return repr(sorted((name, repr(value)) for name, value in cell.settings.items() if name != "plugins"))


def hardware_differences(base: View, new: View) -> list[str]:
    """What differs between the machines of two views, each as text; empty for the same machine."""
    sides = base.environment.hardware, new.environment.hardware
    return ["hardware: unknown on one side"] if Hardware() in sides else _differences(*sides)


def _differences(left: Hardware | Software, right: Hardware | Software) -> list[str]:
    one, other = left.document(), right.document()
    names = dict.fromkeys((*one, *other))
    return [
        f"{name}: {told(one.get(name))} and {told(other.get(name))}"
        for name in names
        if one.get(name) != other.get(name)
    ]


def _without_seed(cell: Cell) -> str:
    return repr(sorted((name, repr(value)) for name, value in cell.settings.items() if name != "seed"))


def _seconds(view: View, cell: Cell) -> list[float]:
    return [seconds for seconds in (times(view, cell, METRIC) or {}).values() if seconds]


def _to_vanilla(view: View, cell: Cell) -> list[float]:
    """Ratios to the vanilla cell that took turns with this one, epoch by epoch."""
    base = next((other for other in _beside(view, cell) if other.kind == baselines()[0]), None)
    pairs = paired_times(view, [cell], [base], METRIC) if base is not None else None
    return [one / other for one, other in (pairs[0] if pairs else ()) if one and other]


def _beside_vanilla(view: View, cell: Cell) -> bool:
    """Whether the cell took turns with vanilla, or is vanilla and took turns with another."""
    others = _beside(view, cell)
    return bool(others) and any(other.kind == baselines()[0] for other in (cell, *others))


def _beside(view: View, cell: Cell) -> list[Cell]:
    """The cells that took turns with this one and differ from it in nothing but the method and what goes with it."""
    return [
        other
        for other in view.cells
        if other.ok
        and view.paired(cell, other)
        and all(cell.settings.get(name) == other.settings.get(name) for name in {*having("place"), *having("run")})
    ]


def _disturbed(pairs: Sequence[tuple[Cell, Cell]]) -> str:
    """Why the times of some cells are not comparable."""
    return ", ".join(dict.fromkeys(reason for both in pairs for cell in both for reason in disturbances(cell)))


def _count(value: int | None) -> str:
    return dash() if value is None else f"{value:,}"
