"""Every method's step on a mock GPU: what it queues, that it waits for nothing, that it can be recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tabulate import tabulate

from bnpbench.methods.base import MethodPlugin
from bnpbench.registry import built_in
from bnpbench.text import DASH
from tests.support.mockgpu import (
    ENGINES,
    METHODS,
    NETWORKS,
    NOT_APPLICABLE,
    ROOT,
    WORK,
    MockGpu,
    Row,
    applicable,
    name,
    seen,
    summary,
    work,
)


@pytest.fixture(scope="module")
def eager(mockgpu: MockGpu) -> list[Row]:
    return mockgpu.found("steps", NETWORKS, METHODS, "eager", False)


@pytest.fixture(scope="module")
def graphed(mockgpu: MockGpu) -> list[Row]:
    return mockgpu.found("steps", NETWORKS, METHODS, "graphed", False)


def kinds_of_steps(row: Row) -> int:
    """Two where a method refreshes what it keeps in some steps: each is a graph."""
    method = built_in().kinds(MethodPlugin)[name(row["method"]).partition("(")[0]]
    return 2 if getattr(method.made(), "every", 1) > 1 else 1


def test_an_eager_step_queues_work_and_nothing_else(
    eager: list[Row], record_property: Callable[[str, object], None]
) -> None:
    """No wait, no copy to or from the host, no allocation."""
    for row in applicable(eager):
        assert row["step"].keys() <= WORK, row
    seen(eager, record_property)


def test_every_step_is_recorded_and_replayed(
    eager: list[Row], graphed: list[Row], record_property: Callable[[str, object], None]
) -> None:
    for alone, row in zip(applicable(eager), applicable(graphed), strict=True):
        assert row["active"] == "graphed(eager)", row
        assert (row["preparing"]["captured"], row["preparing"].get("forbidden", 0)) == (kinds_of_steps(row), 0), row
        assert row["step"].keys() <= WORK | {"replay"}, row
        assert (row["step"]["replay"], work(row)) == (1, work(alone)), row
    seen(graphed, record_property)


def test_bnp_is_a_kernel_a_layer_for_its_statistics_and_one_for_the_rest(eager: list[Row]) -> None:
    """And two for the running values of all: of three layers, and of eight."""
    counts = {(row["network"], name(row["method"])): work(row) for row in applicable(eager)}
    assert counts["fc", "bnp"] - counts["fc", "vanilla"] <= 2 * 3 + 2
    assert counts["resnet8", "bnp"] - counts["resnet8", "vanilla"] <= 2 * 8 + 2


def test_what_a_step_queues(eager: list[Row], snapshot: Callable[[str, str], None]) -> None:
    table: dict[str, list[str]] = {}
    for row in eager:
        table.setdefault(name(row["method"]), []).append(f"{work(row)}" if "step" in row else DASH)
    text = tabulate([[method, *counts] for method, counts in table.items()], ["method", *NETWORKS], tablefmt="github")
    snapshot("eager-kernels.md", text + "\n")
    assert text in (ROOT / "reports/performance.md").read_text()


def test_what_is_left_is_told() -> None:
    """The end of a test session counts the steps that it looked at, and names the others."""
    everything = {(network, name(m), engine) for network in NETWORKS for m in METHODS for engine in ENGINES}
    never = {("fc", "bn", engine) for engine in ENGINES}
    left = {("cnn", name(m), "graphed(compiled)") for m in METHODS} | {("resnet8", "bn", "graphed(compiled)")}
    count = len(NETWORKS) * len(METHODS) - 1
    found = everything - never | {("fc", "bn", NOT_APPLICABLE)}
    assert summary(found) == [f"{engine}: {count} of {count}" for engine in ENGINES]
    assert summary(found - left)[2:] == [
        f"graphed(compiled): {count - len(left)} of {count}",
        f"  {len(METHODS)} left of cnn: all",
        "  1 left of resnet8: bn",
        "what is left takes minutes to compile, or was not asked for: nox -s mockgpu looks at it all",
    ]
