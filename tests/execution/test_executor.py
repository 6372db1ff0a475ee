"""What a machine has to give to a run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bnpbench.execution import executor
from bnpbench.execution.executor import PRECOMPILE, gpu_numbers, modules_for, share, usable_cores
from bnpbench.records.documents import Details, Environment, Hardware
from bnpbench.suite import load_suite


@pytest.mark.regression
def test_a_process_uses_the_cores_that_it_may() -> None:
    def cores(affinity: list[int] | None) -> list[int]:
        return usable_cores(Environment(id="x", hardware=Hardware(cores=4), details=Details(affinity=affinity)))

    assert cores(None) == [0, 1, 2, 3]
    assert cores([2]) == [2]
    assert cores(list(range(8))) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("cores", "affinity", "places", "shares"),
    [
        (4, [0, 1, 2, 3, 4, 5, 6, 7], 1, [None]),
        (4, [0, 1, 2, 3, 4, 5, 6, 7], 2, [(0, 1), (2, 3)]),
        (4, [8, 9, 10, 11], 2, [(8, 9), (10, 11)]),
        (4, None, 3, [(0,), (1,), (2,)]),
        (2, [0, 1], 3, [(0,), (1,), (0,)]),
    ],
)
def test_the_cores_of_a_machine_are_shared_out(
    cores: int, affinity: list[int] | None, places: int, shares: list[tuple[int, ...] | None]
) -> None:
    environment = Environment(id="x", hardware=Hardware(cores=cores), details=Details(affinity=affinity))
    assert [share(environment, place, places) for place in range(places)] == shares


@pytest.mark.regression
@pytest.mark.parametrize(
    ("asked", "gpus", "numbers"),
    [
        ("cuda", 2, [0, 1, 0]),
        ("auto", 4, [0, 1, 2]),
        ("cuda:1", 2, [1, 1, 1]),
        ("auto", 0, [0, 0, 0]),
        ("cpu", 2, [0, 0, 0]),
    ],
)
def test_workers_have_the_devices_in_turn(asked: str, gpus: int, numbers: list[int]) -> None:
    """``--jobs 2`` put all blocks on the first of two."""
    assert gpu_numbers(asked, gpus, 3) == numbers


@pytest.mark.parametrize(
    ("suite", "gpus", "compiles"),
    [("crossover", 0, True), ("quick", 0, False), ("quick", 1, True), ("quick", None, True), ("regression", 1, False)],
)
def test_a_compiler_is_imported_once_for_all_children_where_one_is_needed(
    suite: str, gpus: int | None, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "driver_count", lambda: gpus)
    assert (PRECOMPILE in modules_for(load_suite(suite))) is compiles


def test_what_is_imported_once_starts_no_thread_and_touches_no_device() -> None:
    """What a module says as it is imported would stand on a person's terminal."""
    script = """
import os, sys, bnpbench.execution.preload, torch
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
import bnpbench.execution.precompile
counted = "torch.utils.cpp_extension" in sys.modules  # as it is imported
print(threads() - before, torch.cuda.is_initialized(), counted)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("0 False False\n", "")
