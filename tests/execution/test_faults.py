"""Sweeps killed at random moments; tests/benchmarks/fault_injection.py does it a hundred times."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.fault_injection import inject


def test_kills_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    tally = inject(tmp_path, kills=4, cells=9)
    assert tally.kills.total() == 4
    assert tally.faults == 0, tally
