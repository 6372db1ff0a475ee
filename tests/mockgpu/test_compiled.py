"""Steps that are compiled, and recorded as CUDA graphs, on a mock GPU: compiled they are by the real compilers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bnpbench.text import DASH
from tests.support.mockgpu import COMPILED_AT_ONCE, METHODS, NETWORKS, ROOT, WORK, MockGpu, applicable, name, seen, work

REST = {network: [m for m in METHODS if m not in COMPILED_AT_ONCE.get(network, [])] for network in NETWORKS}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("network", "methods"), COMPILED_AT_ONCE.items(), ids=COMPILED_AT_ONCE)
def test_a_compiled_step_is_recorded_and_replayed(
    mockgpu: MockGpu,
    network: str,
    methods: list[Any],
    snapshot: Callable[[str, str], None],
    record_property: Callable[[str, object], None],
) -> None:
    snapshot(f"compiled-kernels-{network}.txt", recorded(mockgpu, network, methods, record_property))


@pytest.mark.compiles
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("network", "methods"), [one for one in REST.items() if one[1]], ids=filter(REST.get, REST))
def test_so_are_the_others(
    mockgpu: MockGpu, network: str, methods: list[Any], record_property: Callable[[str, object], None]
) -> None:
    print(recorded(mockgpu, network, methods, record_property))


def recorded(mockgpu: MockGpu, network: str, methods: list[Any], record_property: Callable[[str, object], None]) -> str:
    """What each method's step queues, a line each."""
    rows = mockgpu.found("steps", [network], methods, "graphed", True, timeout=3600)
    for row in applicable(rows):
        assert row["active"] == "graphed(compiled)", row
        assert row["preparing"].get("forbidden", 0) == 0, row
        assert row["step"].keys() <= WORK | {"replay"}, row
    seen(rows, record_property)
    counts = {name(row["method"]): f"{work(row)}" if "step" in row else DASH for row in rows}
    if network == "fc":
        told = (ROOT / "reports/performance.md").read_text()
        assert [one for one in counts.items() if "| {} | {} |\n".format(*one) not in told] == []
    return "".join(f"{method}: {count}\n" for method, count in counts.items())
