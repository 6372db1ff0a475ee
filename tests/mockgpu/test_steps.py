"""Every method's step on a mock GPU: what it queues, that it waits for nothing, that it can be recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tabulate import tabulate

from bnpbench.text import DASH
from tests.support.mockgpu import NETWORKS, ROOT, WORK, MockGpu, Row, applicable, name, work


@pytest.fixture(scope="module")
def eager(mockgpu: MockGpu) -> list[Row]:
    return mockgpu.found("steps", NETWORKS, None, "eager", False)


@pytest.fixture(scope="module")
def graphed(mockgpu: MockGpu) -> list[Row]:
    return mockgpu.found("steps", NETWORKS, None, "graphed", False)


def test_an_eager_step_queues_work_and_nothing_else(eager: list[Row]) -> None:
    """No wait, no copy to or from the host, no allocation."""
    for row in applicable(eager):
        assert row["step"].keys() <= WORK, row


def test_every_step_is_recorded_and_replayed(eager: list[Row], graphed: list[Row]) -> None:
    for alone, row in zip(applicable(eager), applicable(graphed), strict=True):
        assert row["active"] == "graphed(eager)", row
        assert (row["preparing"]["captured"], row["preparing"].get("forbidden", 0)) == (1, 0), row
        assert row["step"].keys() <= WORK | {"replay"}, row
        assert (row["step"]["replay"], work(row)) == (1, work(alone)), row


def test_what_a_step_queues(eager: list[Row], snapshot: Callable[[str, str], None]) -> None:
    table: dict[str, list[str]] = {}
    for row in eager:
        table.setdefault(name(row["method"]), []).append(f"{work(row)}" if "step" in row else DASH)
    text = tabulate([[method, *counts] for method, counts in table.items()], ["method", *NETWORKS], tablefmt="github")
    snapshot("eager-kernels.md", text + "\n")
    assert text in (ROOT / "reports/performance.md").read_text()
