"""A learning rate that falls by steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bnpbench.fields import Positive
from bnpbench.schedules.base import SchedulePlugin


class Steps(SchedulePlugin):
    """The learning rate times ``factor`` after each of the ``epochs``: with (80, 120), epoch 81 is the first."""

    kind: Literal["steps"]
    epochs: Annotated[tuple[Positive, ...], Field(min_length=1)]
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.1

    def share(self, epoch: int) -> float:
        return self.factor ** sum(epoch > last for last in self.epochs)

    def unused(self, epochs: int) -> str | None:
        late = next((epoch for epoch in self.epochs if epoch >= epochs), None)
        if late is None:
            return None
        return f"the step of the learning rate after epoch {late} comes after the last, {epochs}"
