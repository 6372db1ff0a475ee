"""Counting kernels where there is no GPU; the mock GPU has those of every step."""

from __future__ import annotations

import pytest
import torch

from bnpbench.measure import kernels


def test_where_the_profiler_sees_none_the_count_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(kernels, "ACTIVITIES", [torch.profiler.ProfilerActivity.CPU])
    done = []
    assert kernels.kernels_of(lambda: done.append(torch.ones(3) + 1)) is None
    assert len(done) == 1


def test_what_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kernels, "ACTIVITIES", [torch.profiler.ProfilerActivity.CPU])

    def fails() -> None:
        raise RuntimeError("no such device")

    assert kernels.kernels_of(fails) is None
    assert "no such device" in capsys.readouterr().err
