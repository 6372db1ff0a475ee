"""What all tests share."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch

from tests.support import mockgpu

SLOW = {"execution", "cli", "training", "profiling"}  # folders whose files take minutes, and are begun first

torch.set_num_threads(1)  # the tensors are small: a second thread would only wait


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--renew-snapshots", action="store_true", help="Store what the chosen tests see instead of comparing with it."
    )


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares text with a file in the next folder ``snapshots`` above; ``--renew-snapshots`` stores it anew."""
    above = [folder / "snapshots" for folder in request.path.parents]

    def check(name: str, text: str) -> None:
        path = next((folder for folder in above if folder.is_dir()), above[0]) / name
        if request.config.getoption("--renew-snapshots"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path} holds something else"

    return check


@pytest.fixture(autouse=True, scope="module")
def _nothing_old_is_looked_at() -> None:
    """Every epoch begins with a collection, which need not look at what was imported and made for tests before."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.isdisjoint(item.path.parts))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which steps were looked at on the mock GPU, and which were not."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    told = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    if found := {tuple(step) for name, step in told if name == mockgpu.SEEN}:
        terminalreporter.section("steps on the mock GPU")
        terminalreporter.write_line("\n".join(mockgpu.summary(found)))
