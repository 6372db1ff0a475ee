"""What a suite claims, answered from the data: one verdict for each combination, and what would decide an open one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from bnpbench.records.documents import BoundsRecord, ClaimRecord, CombinationRecord, SideRecord
from bnpbench.records.rows import metric as known
from bnpbench.report.data import Cell, Series, View, number, tallied, views
from bnpbench.report.query import (
    ALONE,
    At,
    Missing,
    comparable,
    default_at,
    describe_at,
    is_comparable,
    paired,
    rounding,
    times,
    value,
    whole,
)
from bnpbench.results import Results
from bnpbench.statistics.intervals import Estimate, mean_interval, ratio_interval, student
from bnpbench.statistics.times import processes_interval, unpaired_interval
from bnpbench.suite import told
from bnpbench.text import fixed, number_of, plural, significant

Outcome = Literal["holds", "fails", "undecided", "no data"]
Seeds = dict[str, Cell]  # seed to the cell that a side picks

NOISY = 0.05  # half an interval's width, as a share of the ratio, from which a table carries a warning
_TURNS = 'take turns ([measure] interleave = ["method"])'
_HOPELESS = 100  # times as many values: nobody will run that


@dataclass(frozen=True)
class Verdict:
    """The answer to a claim for one combination.

    Attributes:
        suite, environment: where it was measured.
        says: the claim in words.
        where: the combination in words; empty where there is only one.
        question: what is bounded, such as ``ratio of train_seconds, bnp / bn``.
        bounds: at least, at most; infinite where the claim has none.
        outcome: interval inside the bounds: holds; outside: fails; else undecided; no number: no data.
        estimate: the number and its interval, unless there is no data.
        unit: what n counts: pairs, epochs, seeds.
        reason: why it is undecided or has no data, or what else a reader must know.
        keys: of the cells it rests on.
    """

    suite: str
    environment: str
    says: str
    where: str
    question: str
    bounds: tuple[float, float]
    outcome: Outcome
    estimate: Estimate | None
    unit: str
    reason: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Answer:
    """The number asked for, what its n counts, a remark, and the side that never reaches the target, if one does not.

    Such a side is infinite, as nobody knows when it would have got there: that may fail a claim, and fulfils none.
    """

    estimate: Estimate
    unit: str
    remark: str
    never: str = ""


def verdicts(results: Results) -> list[Verdict]:
    """All claims of all suites in all environments."""
    return [verdict for view in views(results) for verdict in view_verdicts(view)]


def claims_exit_code(found: Iterable[Verdict]) -> int:
    """Where claims decide: 4 if one has no data, else 1 if one fails, else 0."""
    outcomes = {verdict.outcome for verdict in found}
    return 4 if "no data" in outcomes else 1 if "fails" in outcomes else 0


def view_verdicts(view: View) -> list[Verdict]:
    """The claims of one suite in one environment; one that cannot be read has no data."""
    found = []
    for claim in view.document.claims:
        if isinstance(claim, ClaimRecord):
            found += [_verdict(view, claim, combination) for combination in claim.combinations]
        else:
            says = str(claim.get("says", claim))[:200]
            reason = "suite.json holds it in a form that this bnpbench cannot read"
            nothing = (-math.inf, math.inf)
            found.append(Verdict(view.suite, view.id, says, "", "", nothing, "no data", None, "", reason))
    return found


def decide(estimate: Estimate, bounds: tuple[float, float]) -> tuple[Outcome, str]:
    """Interval inside the bounds: holds; outside: fails; neither, or no interval: undecided, with the reason."""
    low, high = estimate.low, estimate.high
    if low is None or high is None:
        return "undecided", estimate.reason
    if bounds[0] <= low and high <= bounds[1]:
        return "holds", ""
    if high < bounds[0] or low > bounds[1]:
        return "fails", ""
    return "undecided", ""


def _verdict(view: View, claim: ClaimRecord, combination: CombinationRecord) -> Verdict:
    bounds = _bounds(claim.bounds)
    left = _picked(view, combination.left)
    right = None if combination.right is None else _picked(view, combination.right)
    answer = (_of_times if known(claim.metric).timed else _of_seeds)(view, claim, left, right)
    outcome: Outcome = "no data"
    estimate, unit = None, ""
    if isinstance(answer, Missing):
        reason = answer.reason
    else:
        picked = (*left.values(), *(right or {}).values())
        estimate, unit = comparable(answer.estimate, picked, claim.metric), answer.unit
        outcome, doubt = decide(estimate, bounds)
        if answer.never:
            never = f"infinite: the {answer.never} side never reaches the target"
            doubt = "; ".join(filter(None, (doubt, never)))
            if outcome == "holds":
                outcome, estimate = "undecided", replace(estimate, low=None, high=None, reason=never)
        shortened = dict.fromkeys(cell.shortened for side in (left, right or {}) for cell in side.values())
        reason = "; ".join(filter(None, (doubt, answer.remark, *shortened)))
    cells = (*left.values(), *(right or {}).values())
    return Verdict(
        suite=view.suite,
        environment=view.id,
        says=claim.says,
        where=", ".join(f"{name} = {told(value)}" for name, value in _leaves(combination.where or {})),
        question=_question(claim, left, right),
        bounds=bounds,
        outcome=outcome,
        estimate=estimate,
        unit=unit,
        reason=reason,
        keys=tuple(cell.key for cell in cells),
    )


def _of_seeds(view: View, claim: ClaimRecord, left: Seeds, right: Seeds | None) -> _Answer | Missing:
    metric = claim.metric
    ats = _ats(claim)
    values: list[float] = []
    sides: list[list[float]] = []  # of each value, the numbers that it is made of
    roundings: list[float] = []
    reasons: list[str] = []
    for seed, cell in left.items():
        if right is not None and seed not in right:
            reasons.append(f"right has no seed {seed}")
            continue
        cells = [cell] if right is None else [cell, right[seed]]
        found = [
            whole(one, value(view, one, metric, at, claim.target), metric, at)
            for one, at in zip(cells, ats, strict=True)
        ]
        numbers = [number for number in found if not isinstance(number, Missing)]
        reasons += [missing.reason for missing in found if isinstance(missing, Missing)][:1]
        if len(numbers) < len(cells):
            continue
        answer = _compared(claim, numbers)
        if isinstance(answer, Missing):
            reasons.append(answer.reason)
            continue
        values.append(answer)
        sides.append(numbers)
        roundings.append(rounding(view, metric, cells, numbers if claim.question == "ratio" and all(numbers) else ()))
    if not values:
        return Missing(tallied(reasons) or "not measured")
    if metric == "reached" or (known(metric).exact and len(set(values)) == 1):  # a fact of these runs
        share = sum(values) / len(values)
        estimate = Estimate(share, len(values), share, share)
    elif claim.question == "ratio":
        estimate = ratio_interval(values, max(roundings))
    else:
        estimate = mean_interval(values, max(roundings))
    named = zip(("left", "right"), zip(*sides, strict=True), strict=False) if known(metric).table == "targets" else ()
    never = next((name for name, numbers in named if all(map(math.isinf, numbers))), "")
    return _Answer(estimate, "seeds", tallied(reasons), never)


def _compared(claim: ClaimRecord, numbers: Sequence[float]) -> float | Missing:
    """Of one side its number, of two their difference or ratio."""
    if len(numbers) == 1:
        return numbers[0]
    left, right = numbers
    if math.isinf(left) and math.isinf(right):
        never = known(claim.metric).table == "targets"
        return Missing("neither side reaches the target" if never else f"{claim.metric} is not finite")
    if claim.question == "difference":
        return left - right
    return left / right if right != 0 else Missing("the right side is 0")


def _of_times(view: View, claim: ClaimRecord, left: Seeds, right: Seeds | None) -> _Answer | Missing:
    """In pairs where both sides took turns and are asked for the same epochs, else each side on its own."""
    metric, ratio, ats = claim.metric, claim.question == "ratio", _ats(claim)
    first, reasons = _sampled(view, left, metric, ats[0])
    if right is None:
        if not first:
            return Missing(tallied(reasons) or "not measured")
        return _Answer(
            processes_interval([list(series.values()) for series in first.values()], "times"),
            "epochs",
            tallied(reasons),
        )
    second, more = _sampled(view, right, metric, ats[1])
    reasons += more
    common = [seed for seed in first if seed in second]
    if not common:
        return Missing(tallied(reasons) or "the sides have no seed in common")
    if ratio and not all(seconds for seed in common for seconds in second[seed].values()):
        return Missing("the right side is 0")
    alike = ats[0] == ats[1] != "best" or all(first[seed].keys() == second[seed].keys() for seed in common)
    pairs = paired(view, {seed: (left[seed], right[seed]) for seed in common}, first, second) if alike else None
    if pairs:
        compared = [[one / other if ratio else one - other for one, other in cell] for cell in pairs]
        return _Answer(processes_interval(compared, "ratios" if ratio else "differences"), "pairs", tallied(reasons))
    samples = [[list(side[seed].values()) for seed in common] for side in (first, second)]
    apart = "not measured in turn" if alike else "each side over epochs of its own, not in pairs"
    remark = "; ".join(filter(None, (tallied(reasons), apart)))
    return _Answer(unpaired_interval(*samples, ratio=ratio), "epochs", remark)


def _sampled(view: View, side: Seeds, metric: str, at: At) -> tuple[dict[str, Series], list[str]]:
    """Seed to the times of its cell, and the reasons where there are none."""
    found = {seed: whole(cell, times(view, cell, metric, at), metric, at) for seed, cell in side.items()}
    reasons = [series.reason for series in found.values() if isinstance(series, Missing)]
    return {seed: series for seed, series in found.items() if not isinstance(series, Missing)}, reasons


def _picked(view: View, keys: Mapping[str, str]) -> Seeds:
    return {str(seed): view.by_key[key] for seed, key in keys.items() if key in view.by_key}


def _bounds(bounds: BoundsRecord) -> tuple[float, float]:
    low, high = bounds.at_least, bounds.at_most
    return -math.inf if low is None else number(low), math.inf if high is None else number(high)


def _question(claim: ClaimRecord, left: Seeds, right: Seeds | None) -> str:
    metric = claim.metric if claim.target is None else f"{claim.metric} {claim.target}"
    usual = default_at(claim.metric)
    pairs = ((claim.left, left), (claim.right, right))
    given = [(side, _side(side, seeds, usual)) for side, seeds in pairs if side is not None and seeds is not None]
    sides = [name for _, name in given]
    if len(set(sides)) < len(sides):  # one method on both sides, with other settings
        sides = [f"{name} ({others})" if (others := _others(side)) else name for side, name in given]
    sign = " / " if claim.question == "ratio" else " − "
    kind = "" if claim.question == "value" else f"{claim.question} of "
    return f"{kind}{metric}, {sign.join(sides)}"


def _ats(claim: ClaimRecord) -> list[At]:
    """When each side is looked at."""
    sides = filter(None, (claim.left, claim.right))
    return [default_at(claim.metric) if side.at is None else side.at for side in sides]


def _side(side: SideRecord, seeds: Seeds, usual: At) -> str:
    labels = dict.fromkeys(cell.label for cell in seeds.values())
    sizes = side.pattern.get("batch_size")
    name = ", ".join(labels) + (f" at {sizes}" if sizes is not None else "")
    at = usual if side.at is None else side.at
    return name if at == usual else f"{name} ({describe_at(at)})"


def _others(side: SideRecord) -> str:
    """What a side is picked by besides the method and the batch size, which its name tells."""
    leaves = _leaves({name: value for name, value in side.pattern.items() if name not in ("method", "batch_size")})
    return ", ".join(f"{name} = {told(value)}" for name, value in leaves)


def _leaves(where: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, inner in where.items():
        if isinstance(inner, dict) and "kind" not in inner:
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


# --- what to do where the noise is too large for an answer, knowing what is on already ------------------------------


def noise(view: View, ratios: Sequence[Estimate]) -> list[str]:
    """A warning where intervals of ratios are wide, or missing, and why."""
    few = [ratio.reason for ratio in ratios if ratio.width is None]
    wide = [ratio for ratio in ratios if ratio.width is not None and ratio.width > NOISY * ratio.value]
    found = []
    if few:
        why, has = ", ".join(dict.fromkeys(few)), plural(len(few), "has", "have")
        ratios_told = number_of(len(ratios), "ratio")
        found.append(f"{len(few)} of {ratios_told} {has} no interval ({why}): {_more_epochs(view)}.")
    if wide:
        worst = max(ratio.width / ratio.value for ratio in wide if ratio.width is not None)
        intervals, are = number_of(len(ratios), "interval"), plural(len(wide), "is", "are")
        found.append(
            f"Noisy: {len(wide)} of {intervals} {are} wider than ±{NOISY:.0%} (up to ±{worst:.0%}); {_remedy(view)}."
        )
    return found


def advice(view: View, verdict: Verdict) -> str:
    """Why a claim is undecided and what would decide it; empty for the other verdicts."""
    estimate = verdict.estimate
    if verdict.outcome != "undecided" or estimate is None:
        return ""
    name = f"{verdict.says} ({verdict.where})" if verdict.where else verdict.says
    if "infinite" in estimate.reason or "logarithm" in estimate.reason:
        return f"Undecided: {name}: {estimate.reason}; a target that more seeds reach would decide it."
    if not is_comparable(estimate):
        return f"Undecided: {name}: {estimate.reason}; {ALONE}."
    seeds = verdict.unit == "seeds" or estimate.processes > 1
    if estimate.width is None:
        apart = "" if seeds or view.document.measure.interleave else f"{_TURNS} or "
        more = "raise the number of seeds" if seeds or "processes" in estimate.reason else _more_epochs(view)
        return f"Undecided: {name}: {estimate.reason}; {apart}{more}."
    distance = min(abs(estimate.value - bound) for bound in verdict.bounds if math.isfinite(bound))
    digits = significant(estimate.width, 2)
    head = f"Undecided: {name}: the interval reaches ±{digits}, the bound is {significant(distance, 2)} away"
    if seeds:
        count = estimate.n if verdict.unit == "seeds" else estimate.processes
        needed, remedy = seeds_needed(count, estimate.width, distance, _HOPELESS * count), ""
    else:
        root = estimate.width / distance if distance else math.inf  # its square may be more than a float holds
        needed = math.ceil(root**2 * estimate.n) if root <= math.sqrt(_HOPELESS) else None
        remedy = f"; {_remedy(view)}"
    if needed is None:
        return f"{head}; the number lies on the bound, and no length of run will decide it."
    return f"{head}; about {fixed(needed, 0)} {'seeds' if seeds else verdict.unit} would decide it{remedy}."


def seeds_needed(n: int, width: float, distance: float, most: int) -> int | None:
    """With how many seeds of the same spread Student's interval would be narrower than ``distance`` on each side.

    Args:
        n: seeds so far, at least two.
        width: half the interval's width with them.
        distance: positive.
        most: answer None above it.
    """
    deviation = width * math.sqrt(n) / student(n - 1)
    counts = range(n + 1, most + 1)
    return next((m for m in counts if student(m - 1) * deviation < distance * math.sqrt(m)), None)


def _remedy(view: View) -> str:
    """What is not on yet, before what is."""
    off, on = [], []
    if view.document.measure.interleave:
        on.append("turns are taken")
    else:
        off.append(_TURNS)
    if view.document.measure.warmup_epochs:
        on.append("warm-up is apart")
    else:
        off.append("keep the warm-up apart (warmup_epochs = 1)")
    off.append(_more_epochs(view))
    already = f" ({' and '.join(on)} already)" if on else ""
    return f"{', '.join(off)}, or stop what else the machine does{already}"


def _more_epochs(view: View) -> str:
    if view.document.shortened:
        return "run without --epochs"
    if view.document.measure.interval:
        measure = view.document.measure
        limits = [name for name in ("max_epochs", "max_seconds") if getattr(measure, name)]
        return f"raise {' and '.join(limits)}" if limits else "set max_epochs higher"
    return "run more epochs or seeds"
