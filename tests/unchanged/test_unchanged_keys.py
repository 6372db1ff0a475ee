"""The keys of all cells of all suites are what they were: results of earlier versions stay theirs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import pytest

from bnpbench.suite import Cell, Suite, load_suite, setting

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SUITES = sorted([*ROOT.glob("suites/*.toml"), *ROOT.glob("tests/benchmarks/*.toml")])
THREADS = 2  # what "auto" stands for here


def keys_of(suite: Suite, device: Literal["cpu", "cuda"]) -> dict[str, str]:
    """Role, label and batch size to the sorted keys of these cells, the finals of every value of ``[select]`` among
    them."""
    cells = suite.cells(device=device, threads=THREADS)
    found: dict[str, set[str]] = {}
    for cell in (*cells, *all_finals(suite, cells, device)):
        place = f"{cell.role}: {cell.label}, N = {cell.settings.batch_size}"
        found.setdefault(place, set()).add(cell.key)
    return {place: " ".join(sorted(keys)) for place, keys in found.items()}


def all_finals(suite: Suite, trials: Iterable[Cell], device: Literal["cpu", "cuda"]) -> Iterable[Cell]:
    """The finals that follow where each value in turn was the best."""
    if suite.select is not None:
        values = {trial.key: repr([setting(trial.data, axis) for axis in suite.select.axes]) for trial in trials}
        for best in dict.fromkeys(values.values()):
            scores = {key: float(value == best) for key, value in values.items()}
            yield from suite.finals(scores, device=device, threads=THREADS)


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_no_key_has_changed(path: Path, snapshot: Callable[[str, str], None]) -> None:
    suite = load_suite(path)
    found = {device: keys_of(suite, device) for device in ("cpu", "cuda")}
    snapshot(f"keys/{path.stem}.json", json.dumps(found, indent=1) + "\n")


def test_every_suite_has_its_keys_kept() -> None:
    assert {path.stem for path in SUITES} == {path.stem for path in HERE.glob("snapshots/keys/*.json")}


def test_blocks_have_the_ids_that_they_had(snapshot: Callable[[str, str], None]) -> None:
    """A finished block is found by its id; another would measure all of its cells again."""
    found = {}
    for path in SUITES:
        suite = load_suite(path)
        blocks = suite.blocks(suite.cells(device="cpu", threads=THREADS))
        found[path.stem] = " ".join(sorted(block.id for block in blocks[:: max(1, len(blocks) // 10)]))
    snapshot("blocks.json", json.dumps(found, indent=1) + "\n")
