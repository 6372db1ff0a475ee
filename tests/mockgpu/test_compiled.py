"""Steps that are compiled, and recorded as CUDA graphs, on a mock GPU: compiled they are by the real compilers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bnpbench.text import DASH
from tests.support.mockgpu import NETWORKS, WORK, MockGpu, applicable, name, work

QUICK = {"resnet8": ["bnp+gn"], "fc": ["vanilla", "bn", "bnp"]}


@pytest.mark.parametrize("network", QUICK)
def test_a_compiled_step_is_recorded_and_replayed(
    mockgpu: MockGpu, network: str, snapshot: Callable[[str, str], None]
) -> None:
    recorded(mockgpu, network, QUICK[network], snapshot)


@pytest.mark.compiles
@pytest.mark.parametrize("network", NETWORKS)
def test_every_compiled_step_is_recorded_and_replayed(
    mockgpu: MockGpu, network: str, snapshot: Callable[[str, str], None]
) -> None:
    recorded(mockgpu, network, None, snapshot if network == "fc" else None)


def recorded(mockgpu: MockGpu, network: str, methods: list[str] | None, snapshot: Callable[[str, str], None]) -> None:
    rows = mockgpu.found("steps", [network], methods, "graphed", True, timeout=1500)
    for row in applicable(rows):
        assert row["active"] == "graphed(compiled)", row
        assert row["preparing"].get("forbidden", 0) == 0, row
        assert row["step"].keys() <= WORK | {"replay"}, row
    counts = "".join(f"{name(row['method'])}: {work(row) if 'step' in row else DASH}\n" for row in rows)
    print(f"{network}:\n{counts}")
    if snapshot is not None:
        snapshot(f"compiled-kernels-{network}{'' if methods is None else '-quick'}.txt", counts)
