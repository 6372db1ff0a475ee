"""Training loss and test accuracy over epochs, a panel for each batch size (the paper's Figures 3 to 7)."""

from __future__ import annotations

from collections.abc import Iterable

from bnpbench.report.figures.model import Axis, Curve, Figure, Panel
from bnpbench.report.figures.seeds import Series, about, absent, counted, over_seeds
from bnpbench.report.groups import Group
from bnpbench.report.view import View

_LOG_FROM = 30.0  # largest over smallest loss: from there a linear axis shows one curve and the ground
_EXPLODED = 20.0  # three times the loss of guessing among a thousand classes: one such epoch would rule the axis
_QUANTITIES = (("train_loss", "training loss", True, False), ("test_accuracy", "test accuracy", False, True))


def training(view: View, group: Group) -> Iterable[Figure]:
    """The figure of one group; nothing where no cell has two epochs."""
    found = {batch_size: _curves(view, group, batch_size) for batch_size in group.batch_sizes}
    found = {batch_size: curves for batch_size, curves in found.items() if curves}
    curves = [curve for panel in found.values() for curve in panel]
    if max((len(curve.x) for curve in curves), default=0) < 2:
        return
    losses = [y for curve in curves if curve.dashed for y in (*curve.low, *curve.high)]
    left = Axis("training loss", log=bool(losses) and min(losses) > 0 and max(losses) > _LOG_FROM * min(losses))
    right = Axis("test accuracy")
    panels = [
        Panel(
            f"batch size {batch_size}",
            Axis("epoch", whole=True),
            left if losses else right,
            curves if losses else tuple(_on_the_left(curve) for curve in curves),
            right if losses and any(curve.right for curve in curves) else None,
        )
        for batch_size, curves in found.items()
    ]
    yield Figure(
        "training",
        view.suite,
        view.environment["id"],
        "training",
        "Training loss and test accuracy",
        tuple(panels),
        (counted(curves), *absent(group, found), *_exploded(view, group), *about(view)),
        shared=True,
    )


def _curves(view: View, group: Group, batch_size: int) -> tuple[Curve, ...]:
    found = [
        over_seeds(
            method,
            quantity,
            group.at(method, batch_size),
            lambda cell, column=column: _drawn(view.series(cell, column)),  # type: ignore[misc]
            dashed=dashed,
            right=right,
        )
        for method in group.methods
        for column, quantity, dashed, right in _QUANTITIES
    ]
    return tuple(curve for curve in found if curve is not None)


def _drawn(series: Series) -> Series:
    return {epoch: value for epoch, value in series.items() if not value > _EXPLODED}


def _exploded(view: View, group: Group) -> list[str]:
    """How many epochs are left out for their loss: a sentence, or nothing."""
    cells = [cell for size in group.batch_sizes for method in group.methods for cell in group.at(method, size)]
    losses = [loss for cell in cells for loss in view.series(cell, "train_loss").values()]
    count = sum(loss > _EXPLODED for loss in losses)
    return [f"Not drawn: training losses above {_EXPLODED:.0f}, in {count} of {len(losses)} epochs."] if count else []


def _on_the_left(curve: Curve) -> Curve:
    return Curve(curve.method, curve.quantity, curve.x, curve.y, curve.low, curve.high, n=curve.n)
