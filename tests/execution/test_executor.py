"""What a machine has to give to a run."""

from __future__ import annotations

import pytest

from bnpbench.execution.executor import usable_cores


@pytest.mark.regression
def test_a_process_uses_the_cores_that_it_may() -> None:
    def cores(affinity: list[int] | None) -> list[int]:
        return usable_cores({"hardware": {"cores": 4}, "details": {"affinity": affinity}})

    assert cores(None) == [0, 1, 2, 3]
    assert cores([2]) == [2]
    assert cores(list(range(8))) == [0, 1, 2, 3]
