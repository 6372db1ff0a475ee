"""What a run asks of every setting before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.execution.listing import build
from bnpbench.execution.messages import Preflight
from bnpbench.execution.preflight import preflight
from tests.support.command import SUITE, suite


@pytest.mark.regression
def test_a_network_beyond_all_bounds_is_named(tmp_path: Path) -> None:
    """It ended as a bug of bnpbench, with 70."""
    loaded = load_suite(suite(tmp_path, SUITE.replace("hidden = [9, 8]", "hidden = [9223372036854775807]")))
    cells = loaded.cells(device="cpu", threads=1, only=["method=bnp"])
    found = preflight(Preflight(cells, None, True))
    assert {cost.uncounted is not None for cost in found.values()} == {True}
    built = build(loaded, None, only=("method=bnp",))
    assert built.exit_code == 3
    assert "not built: bnp, 2 cells: RuntimeError: " in built.text()
