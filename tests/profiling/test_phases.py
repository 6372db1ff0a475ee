"""A step by phase and by operator."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from bnpbench import BNP, load_suite
from bnpbench.bnp import fused
from bnpbench.execution.messages import Profile
from bnpbench.methods.bnp import Bnp
from bnpbench.profiling.phases import profile
from tests.support.command import suite
from tests.support.suite_texts import PROFILED


def test_what_is_slow_shows_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precondition = BNP.precondition

    def slow(self: BNP) -> None:
        time.sleep(0.02)
        precondition(self)

    monkeypatch.setattr(BNP, "precondition", slow)
    monkeypatch.setattr("bnpbench.profiling.phases.configure", lambda *arguments: None)
    (cell,) = load_suite(suite(tmp_path, PROFILED, "small.toml")).cells(
        device="cpu", threads=1, only=["method=bnp", "batch_size=64"], seeds=1
    )
    found = profile(Profile(cell, 5, None, 0, tmp_path / "trace.json"))
    assert found.phases["precondition"].host > 20
    assert found.phases["precondition"].host > 0.5 * found.step.host
    assert sum(phase.host for phase in found.phases.values()) == pytest.approx(found.step.host, rel=0.2)


@pytest.mark.parametrize("form", ["plain", "fused"])
def test_an_update_that_is_part_of_the_method_is_told(
    form: Literal["plain", "fused"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "compiled", lambda layout, places: layout.step)
    monkeypatch.setattr("bnpbench.profiling.phases.configure", lambda *arguments: None)
    method = Bnp(kind="bnp", form=form)
    (cell,) = load_suite(suite(tmp_path, PROFILED, "small.toml")).cells(
        device="cpu", threads=1, only=["method=bnp", "batch_size=64"], seeds=1
    )
    cell = replace(cell, settings=cell.settings.model_copy(update={"method": method}))
    found = profile(Profile(cell, 3, None, 0, tmp_path / "trace.json"))
    assert found.joined is (form == "fused")
    assert sum(phase.host for phase in found.phases.values()) == pytest.approx(found.step.host, rel=0.2)
