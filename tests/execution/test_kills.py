"""Kills at random moments, in a file of its own: it takes as long as many others together."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.kills import inject


def test_kills_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    """``tests/benchmarks/kills.py`` does it a hundred times, in more ways."""
    tally = inject(tmp_path, kills=2, only=["beside"])
    assert tally.blows.total() >= 2
    assert tally.faults == []
