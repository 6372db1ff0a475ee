"""``--shard``: what a batch queue's array gives is what one run gives."""

from __future__ import annotations

from pathlib import Path

from bnpbench import read_results
from tests.support.command import SUITE, bnpbench, start, suite
from tests.support.timeless import timeless

PLACES = (1, 2, 3)


def test_three_shards_as_three_processes_give_the_results_of_one_run(tmp_path: Path) -> None:
    """Two share a folder, as the tasks of an array on a shared disk do; one has its own, as a CI job has."""
    path = suite(tmp_path, SUITE)
    outs = {place: tmp_path / ("own" if place == 3 else "shared") for place in PLACES}
    shards = [start("run", path, "--shard", f"{i}/3", "--out", outs[i], "--quiet", cwd=tmp_path) for i in PLACES]
    for shard in shards:
        _, errors = shard.communicate(timeout=200)
        assert shard.returncode == 0, errors
    assert bnpbench("run", path, "--out", tmp_path / "one", "--quiet", cwd=tmp_path).returncode == 0
    ours, theirs = read_results(tmp_path / "shared", tmp_path / "own"), read_results(tmp_path / "one")
    assert not ours.damaged
    for a, b in ((ours.cells, theirs.cells), (ours.epochs, theirs.epochs)):
        assert len(b) >= 4
        assert timeless(a).equals(timeless(b))
    assert {len(read_results(out).cells) for out in outs.values()} == {1, 3}
    for sides, counts in (
        (("one", "shared", "--new", "own"), "4 cells in both, 0 only in the base, 0 only in the new results"),
        (("shared", "one", "--base", "own"), "4 cells in both, 0 only in the base, 0 only in the new results"),
        (("one", "shared"), "3 cells in both, 1 only in the base, 0 only in the new results"),
    ):
        compared = bnpbench("compare", *sides, cwd=tmp_path)
        assert compared.returncode == 0, compared.stderr
        assert counts in compared.stdout
