"""What a suite may well ask for, and hardly means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bnpbench.suite.cells import Cell
from bnpbench.suite.data import split_sizes
from bnpbench.suite.document import Measure
from bnpbench.suite.settings import Settings
from bnpbench.suite.vocabulary import Steps


def warnings(cells: Sequence[Cell], measure: Measure) -> list[str]:
    """A sentence for each doubt about the cells of a suite, with the methods that it is about."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for doubt in _doubts(cell.settings):
            found.setdefault(doubt, []).append(cell.label)
    told = [f"{', '.join(dict.fromkeys(labels))}: {doubt}" for doubt, labels in found.items()]
    if cells and measure.interval is not None and measure.max_epochs is None and measure.max_seconds is None:
        last = max(measure.last_epoch(cell.settings.epochs) or 0 for cell in cells)
        told.append(f"interval gives up after {last} epochs, as neither max_epochs nor max_seconds says when")
    return told


def _doubts(settings: Settings) -> Iterable[str]:
    schedule, epochs = settings.schedule, settings.epochs
    if (warmup := schedule.warmup) is not None:
        steps = epochs * (split_sizes(settings)[0] // settings.batch_size)
        if warmup.epochs is not None and warmup.epochs >= epochs:
            yield f"a warm-up of {warmup.epochs} epochs outlasts the training of {epochs}: the full rate is never used"
        if warmup.iterations is not None and warmup.iterations >= steps:
            yield (
                f"a warm-up of {warmup.iterations:,} iterations outlasts the training of {steps:,} at batch size "
                f"{settings.batch_size}: the full rate is never used"
            )
    if isinstance(schedule, Steps) and (late := [epoch for epoch in schedule.epochs if epoch >= epochs]):
        yield f"the step of the learning rate after epoch {late[0]} comes after the last, {epochs}"
