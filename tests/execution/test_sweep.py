"""Blocks onto workers: what is written, and when."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bnpbench import load_suite, run_suite
from bnpbench.execution.sweep import PARTIAL_SECONDS
from bnpbench.results import Store
from tests.support.command import SUITE, suite

EPOCHS = 300


SHORT = SUITE.replace("train = 203", "train = 10").replace("epochs = 2", f"epochs = {EPOCHS}")


@pytest.mark.regression
def test_the_epochs_so_far_are_written_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many short epochs rewrote all before it: the run fell behind its cell and saw no timeout."""
    lengths: list[int] = []
    write = Store.write_partial

    def noted(store: Store, key: str, epochs: Sequence[dict[str, Any]]) -> None:
        lengths.append(len(epochs))
        write(store, key, epochs)

    monkeypatch.setattr(Store, "write_partial", noted)
    begin = time.monotonic()
    results = run_suite(load_suite(suite(tmp_path, SHORT)), tmp_path / "out", only=("method=vanilla",), seeds=1)
    assert 1 <= len(lengths) <= 1 + (time.monotonic() - begin) / PARTIAL_SECONDS
    assert lengths == sorted(set(lengths))
    assert list(results.epochs.epoch) == list(range(1, EPOCHS + 1))
