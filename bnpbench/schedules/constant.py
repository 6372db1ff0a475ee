"""One learning rate."""

from __future__ import annotations

from typing import Literal

from bnpbench.schedules.base import SchedulePlugin


class Constant(SchedulePlugin):
    """One learning rate, after a warm-up if there is one."""

    kind: Literal["constant"]

    def share(self, epoch: int) -> float:
        return 1.0
