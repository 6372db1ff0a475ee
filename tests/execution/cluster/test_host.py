"""The node's side of a cluster."""

from __future__ import annotations

import pytest

from bnpbench.execution.cluster.host import device_number


@pytest.mark.parametrize(
    ("assigned", "visible", "number"),
    [([], None, None), (["3"], None, 3), (["3"], "1,3", 1), (["GPU-b"], "GPU-a,GPU-b", 1)],
)
def test_the_number_of_the_gpu_that_was_assigned(assigned: list[str], visible: str | None, number: int | None) -> None:
    assert device_number(assigned, visible) == number
