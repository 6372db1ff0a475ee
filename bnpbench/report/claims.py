"""What a suite claims, answered from the data: one verdict for each combination."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bnpbench.report.metrics import COUNTS, TIMES, At, NoDataError, default_at, describe_at, times, value
from bnpbench.report.view import Cell, View, number, views
from bnpbench.results import Results, told
from bnpbench.statistics.bootstrap import cells_interval, unpaired_interval
from bnpbench.statistics.intervals import Estimate, mean_interval, ratio_interval

Outcome = Literal["holds", "fails", "undecided", "no data"]
Seeds = dict[str, Cell]  # seed to the cell that a side picks


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
    for claim in view.document.get("claims") or ():
        try:
            found += [_verdict(view, claim, combination) for combination in claim["combinations"]]
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            says = str(claim.get("says", claim) if isinstance(claim, dict) else claim)[:200]
            reason = "suite.json holds it in a form that this bnpbench cannot read"
            nothing = (-math.inf, math.inf)
            found.append(
                Verdict(view.suite, view.environment["id"], says, "", "", nothing, "no data", None, "", reason)
            )
    return found


def _verdict(view: View, claim: Mapping[str, Any], combination: Mapping[str, Any]) -> Verdict:
    bounds = _bounds(claim["bounds"])
    left = _picked(view, combination["left"])
    right = _picked(view, combination["right"]) if "right" in combination else None
    outcome: Outcome = "no data"
    estimate, unit, reason = None, "", ""
    try:
        estimate, unit, reason = _estimate(view, claim, left, right)
        outcome, doubt = decide(estimate, bounds)
        reason = "; ".join(filter(None, (doubt, reason)))
    except NoDataError as error:
        reason = str(error)
    cells = (*left.values(), *(right or {}).values())
    return Verdict(
        suite=view.suite,
        environment=view.environment["id"],
        says=str(claim["says"]),
        where=", ".join(f"{name} = {told(value)}" for name, value in _leaves(combination.get("where") or {})),
        question=_question(claim, left, right),
        bounds=bounds,
        outcome=outcome,
        estimate=estimate,
        unit=unit,
        reason=reason,
        keys=tuple(cell.key for cell in cells),
    )


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


def _estimate(view: View, claim: Mapping[str, Any], left: Seeds, right: Seeds | None) -> tuple[Estimate, str, str]:
    """The number asked for, what its n counts, and a remark."""
    if claim["metric"] in TIMES:
        return _of_times(view, claim, left, right)
    return _of_seeds(view, claim, left, right)


def _of_seeds(view: View, claim: Mapping[str, Any], left: Seeds, right: Seeds | None) -> tuple[Estimate, str, str]:
    metric, target = claim["metric"], claim.get("target")
    values: list[float] = []
    reasons: list[str] = []
    for seed, cell in left.items():
        try:
            first = value(view, cell, metric, claim["left"].get("at", "last"), target)
            if right is None:
                values.append(first)
                continue
            if seed not in right:
                raise NoDataError(f"right has no seed {seed}")
            second = value(view, right[seed], metric, claim["right"].get("at", "last"), target)
            values.append(_compared(claim["question"], first, second))
        except NoDataError as reason:
            reasons.append(str(reason))
    if not values:
        raise NoDataError(_counted(reasons))
    if metric in COUNTS and len(values) == 1:
        estimate = Estimate(values[0], 1, values[0], values[0])
    else:
        estimate = ratio_interval(values) if claim["question"] == "ratio" else mean_interval(values)
    return estimate, "seeds", _counted(reasons)


def _compared(question: str, left: float, right: float) -> float:
    if math.isinf(left) and math.isinf(right):
        raise NoDataError("neither side reaches the target")
    if question == "difference":
        return left - right
    if right == 0:
        raise NoDataError("the right side is 0")
    return left / right


def _of_times(view: View, claim: Mapping[str, Any], left: Seeds, right: Seeds | None) -> tuple[Estimate, str, str]:
    """In pairs where both sides took turns and are asked for the same epochs, else each side on its own."""
    metric, ratio = claim["metric"], claim["question"] == "ratio"
    ats = [claim[name].get("at", "all") for name in ("left", "right") if name in claim]
    first, reasons = _sampled(view, left, metric, ats[0])
    if right is None:
        if not first:
            raise NoDataError(_counted(reasons))
        return cells_interval([list(series.values()) for series in first.values()]), "epochs", _counted(reasons)
    second, more = _sampled(view, right, metric, ats[1])
    reasons += more
    common = [seed for seed in first if seed in second]
    if not common:
        raise NoDataError(_counted(reasons) or "the sides have no seed in common")
    if ratio and not all(seconds for seed in common for seconds in second[seed].values()):
        raise NoDataError("the right side is 0")
    alike = ats[0] == ats[1] != "best" or all(first[seed].keys() == second[seed].keys() for seed in common)
    pairs = paired_times(view, {seed: (left[seed], right[seed]) for seed in common}, first, second) if alike else None
    if pairs is not None:
        compared = [[one / other if ratio else one - other for one, other in cell] for cell in pairs]
        return cells_interval(compared), "pairs", _counted(reasons)
    samples = [[seconds for seed in common for seconds in side[seed].values()] for side in (first, second)]
    apart = "not measured in turn" if alike else "each side over epochs of its own, not in pairs"
    remark = "; ".join(filter(None, (_counted(reasons), apart)))
    return unpaired_interval(*samples, ratio=ratio), "epochs", remark


def paired_times(
    view: View,
    cells: Mapping[str, tuple[Cell, Cell]],
    left: Mapping[str, Mapping[int, float]],
    right: Mapping[str, Mapping[int, float]],
) -> list[list[tuple[float, float]]] | None:
    """For each seed the times of the same epoch of two cells that took turns; None unless all of them did."""
    pairs = []
    for seed, (one, other) in cells.items():
        common = [epoch for epoch in left[seed] if epoch in right[seed]]
        if not view.paired(one, other) or not common:
            return None
        pairs.append([(left[seed][epoch], right[seed][epoch]) for epoch in common])
    return pairs


def _sampled(view: View, side: Seeds, metric: str, at: At) -> tuple[dict[str, Mapping[int, float]], list[str]]:
    found: dict[str, Mapping[int, float]] = {}
    reasons = []
    for seed, cell in side.items():
        try:
            found[seed] = times(view, cell, metric, at)
        except NoDataError as reason:
            reasons.append(str(reason))
    return found, reasons


def _picked(view: View, keys: Mapping[str, str]) -> Seeds:
    unknown = Cell("", "?", {}, "final")
    return {str(seed): view.by_key.get(key, unknown) for seed, key in keys.items()}


def _bounds(bounds: Mapping[str, Any]) -> tuple[float, float]:
    low, high = bounds.get("at_least"), bounds.get("at_most")
    found = -math.inf if low is None else number(low), math.inf if high is None else number(high)
    if any(map(math.isnan, found)):
        raise ValueError("a bound is not a number")
    return found


def _question(claim: Mapping[str, Any], left: Seeds, right: Seeds | None) -> str:
    metric = claim["metric"] if claim.get("target") is None else f"{claim['metric']} {claim['target']}"
    usual = default_at(claim["metric"])
    sides = [_side(claim[name], side, usual) for name, side in (("left", left), ("right", right)) if side is not None]
    sign = " / " if claim["question"] == "ratio" else " − "
    kind = "" if claim["question"] == "value" else f"{claim['question']} of "
    return f"{kind}{metric}, {sign.join(sides)}"


def _side(side: Mapping[str, Any], seeds: Seeds, usual: At) -> str:
    labels = dict.fromkeys(cell.label for cell in seeds.values())
    sizes = side.get("pattern", {}).get("batch_size")
    name = ", ".join(labels) + (f" at {sizes}" if sizes is not None else "")
    at = side.get("at", usual)
    return name if at == usual else f"{name} ({describe_at(at)})"


def _leaves(where: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, inner in where.items():
        if isinstance(inner, dict) and "kind" not in inner:
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


def _counted(reasons: list[str]) -> str:
    """``2 not measured, 1 diverged``."""
    return ", ".join(f"{reasons.count(reason)} {reason}" for reason in dict.fromkeys(reasons))
