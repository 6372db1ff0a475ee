"""What a measured number means. No torch: reports compare results by it."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """A change that can move a measured number.

    Attributes:
        what: was changed.
        seconds: whether the seconds of some cell may have moved; else they are comparable across it.
    """

    what: str
    seconds: bool = True


STEPS = {
    2: Step("convolutions on CUDA in float32 unless precision says tf32; BNP in its lean form where that costs less"),
    3: Step("compiled steps without guards, BNP's sums of wide layers in them by the kernel"),
    4: Step("BNP's vectors no arguments of compiled steps, sums of rows in them block by block"),
    5: Step("a schedule that goes on after the warm-up is undone", seconds=False),
    6: Step("operations of grouped convolutions, energy of the processors alone", seconds=False),
    7: Step("BNP's statistics of convolutions over many examples by pieces"),
    8: Step("of an epoch only its steps, and of memory only the epochs; BNP's group maxima on CUDA by offsets"),
    9: Step("BNP in its fused form on a GPU; memory of digits without scikit-learn's"),
    10: Step("compiled steps entered without dynamo; BNP's fused form with statistics and updates in it"),
}
"""By the value of ``MEASUREMENT`` that each brought. What moves accuracies or counts is a finding of a comparison."""

MEASUREMENT = max(STEPS)
"""Raised by any commit that can move a measured number; results of different values never share a table."""


def moved_seconds(one: object, other: object) -> str | None:
    """Why seconds of two values cannot be compared; None where they can.

    Args:
        one, other: values of ``MEASUREMENT``, as an environment.json tells them, which may be anyone's.
    """
    if one == other:
        return None
    known = [value for value in (one, other) if isinstance(value, int) and value in (1, *STEPS)]
    if len(known) < 2 or bool in map(type, known):
        return "this version does not know what changed between them"
    between = range(min(known) + 1, max(known) + 1)
    return "; ".join(STEPS[value].what for value in between if STEPS[value].seconds) or None
