"""What to do where the noise is too large for an answer, knowing what is on already."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bnpbench.report.claims import Verdict
from bnpbench.report.view import View
from bnpbench.statistics.intervals import LEAST_PAIRS, Estimate, student
from bnpbench.text import fixed, significant

NOISY = 0.05  # half an interval's width, as a share of the ratio, from which a table carries a warning
_HOPELESS = 100  # times as many values: nobody will run that


def noise(view: View, ratios: Sequence[Estimate]) -> list[str]:
    """A warning where intervals of ratios are wide, or missing."""
    few = [ratio for ratio in ratios if ratio.width is None]
    wide = [ratio for ratio in ratios if ratio.width is not None and ratio.width > NOISY * ratio.value]
    found = []
    if few:
        found.append(
            f"{len(few)} of {len(ratios)} ratios rest on fewer than {LEAST_PAIRS} pairs: {_more_epochs(view)}."
        )
    if wide:
        worst = max(ratio.width / ratio.value for ratio in wide if ratio.width is not None)
        found.append(
            f"Noisy: {len(wide)} of {len(ratios)} intervals are wider than ±{NOISY:.0%} (up to ±{worst:.0%}); "
            f"{_remedy(view)}."
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
    if estimate.width is None:
        remedy = (
            "two seeds or more are needed" if verdict.unit == "seeds" else f"{LEAST_PAIRS} {verdict.unit} are needed"
        )
        more = "raise the number of seeds" if verdict.unit == "seeds" else _more_epochs(view)
        return f"Undecided: {name}: {remedy}, {estimate.n} measured; {more}."
    distance = min(abs(estimate.value - bound) for bound in verdict.bounds if math.isfinite(bound))
    digits = significant(estimate.width, 2)
    head = f"Undecided: {name}: the interval reaches ±{digits}, the bound is {significant(distance, 2)} away"
    if verdict.unit == "seeds":
        needed, remedy = seeds_needed(estimate.n, estimate.width, distance, _HOPELESS * estimate.n), ""
    else:
        root = estimate.width / distance if distance else math.inf  # its square may be more than a float holds
        needed = math.ceil(root**2 * estimate.n) if root <= math.sqrt(_HOPELESS) else None
        remedy = f"; {_remedy(view)}"
    if needed is None:
        return f"{head}; the number lies on the bound, and no length of run will decide it."
    return f"{head}; about {fixed(needed, 0)} {verdict.unit} would decide it{remedy}."


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
    measure = view.document.get("measure") or {}
    off, on = [], []
    if measure.get("interleave"):
        on.append("turns are taken")
    else:
        off.append('take turns ([measure] interleave = ["method"])')
    if measure.get("warmup_epochs"):
        on.append("warm-up is apart")
    else:
        off.append("keep the warm-up apart (warmup_epochs = 1)")
    off.append(_more_epochs(view))
    already = f" ({' and '.join(on)} already)" if on else ""
    return f"{', '.join(off)}, or stop what else the machine does{already}"


def _more_epochs(view: View) -> str:
    measure = view.document.get("measure") or {}
    if view.document.get("shortened"):
        return "run without --epochs"
    if measure.get("interval"):
        limits = [name for name in ("max_epochs", "max_seconds") if measure.get(name)]
        return f"raise {' and '.join(limits)}" if limits else "set max_epochs higher"
    return "run more epochs or seeds"
