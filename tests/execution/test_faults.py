"""Command lines killed at random moments; tests/benchmarks/kills.py does it a hundred times, in more ways."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.kills import inject


def test_kills_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    tally = inject(tmp_path, kills=4, only=["compaction"])
    assert tally.blows.total() >= 4
    assert tally.faults == []
