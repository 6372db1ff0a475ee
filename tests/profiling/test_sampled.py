"""Steps for a sampling profiler: as long as it was asked, and a sign at the end."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.execution.messages import Profile
from bnpbench.profiling import phases, sampled
from tests.support.command import suite
from tests.support.suite_texts import PROFILED


@pytest.fixture
def request_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As ``inspection.sample`` writes it."""
    monkeypatch.setattr(sampled, "configure", lambda *arguments: None)  # of a process of its own
    loaded = load_suite(suite(tmp_path, PROFILED, "small.toml"))
    (cell,) = loaded.cells(device="cpu", threads=1, only=["method=bnp", "batch_size=64"], seeds=1)
    file = tmp_path / "request"
    file.write_bytes(pickle.dumps((loaded.plugins, pickle.dumps(Profile(cell, 50, None, 0, tmp_path)))))
    return file


def test_steps_are_taken_until_the_time_is_over(
    request_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float] = []

    def stepping(request: Profile) -> Callable[[], None]:
        step = phases.stepping(request)

        def counted() -> None:
            step()
            taken.append(time.perf_counter())

        return counted

    monkeypatch.setattr(sampled, "stepping", stepping)
    sampled.main(request_file, 0.2, tmp_path / "end")
    assert (tmp_path / "end").exists()
    assert len(taken) > 2
    assert taken[-1] - taken[0] <= 0.2 + max(b - a for a, b in pairwise(taken))  # no step begins later


def test_steps_that_fail_leave_no_sign(request_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stepping(request: Profile) -> Callable[[], None]:
        def step() -> None:
            raise ZeroDivisionError

        return step

    monkeypatch.setattr(sampled, "stepping", stepping)
    with pytest.raises(ZeroDivisionError):
        sampled.main(request_file, 0.2, tmp_path / "end")
    assert not (tmp_path / "end").exists()
