"""Cells over two devices, run for real; and what is left of them when something is killed."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest

from bnpbench import read_results
from tests.support.command import bnpbench, started, suite
from tests.support.kept import kept
from tests.support.processes import below, wait_for
from tests.support.timeless import timeless

LONG = """
name = "long"
[train]
dataset = { kind = "synthetic", shape = [12], train = 1500, test = 50, classes = 4 }
network = { kind = "fc", hidden = [9, 8] }
optimizer = { kind = "sgd", lr = 0.01, momentum = 0.9 }
method = "bnp"
batch_size = 3
devices = 2
epochs = 8
threads = 1
device = "cpu"
"""
pytestmark = pytest.mark.skipif((psutil.cpu_count(logical=False) or 1) < 2, reason="needs two cores")
SHORT = LONG.replace("train = 1500", "train = 60").replace("epochs = 8", "epochs = 2").replace("long", "short")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A cell whose ranks are at work."""
    with started("run", suite(tmp_path, LONG), cwd=tmp_path) as process:
        wait_for(lambda: len(ranks(process)) == 2, process)
        yield process


def ranks(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The children of the forkserver's children, in the order of their start."""
    return below(process.pid, generation=3)


def epochs(folder: Path) -> pd.DataFrame:
    return timeless(read_results(folder / "results").epochs, "environment")


def test_two_devices_give_the_rows_of_one(tmp_path: Path) -> None:
    suite(tmp_path, SHORT.replace("devices = 2\n", "") + "[sweep]\ndevices = [1, 2]\n")
    assert bnpbench("run", "tiny.toml", cwd=tmp_path).returncode == 0
    results = read_results(tmp_path / "results")
    assert sorted(results.cells.devices) == [1, 2]
    assert set(results.cells.status) == {"ok"}
    assert results.cells.peak_memory_bytes.gt(0).all()
    for _, rows in results.epochs.groupby("epoch"):
        assert len(rows) == 2
        for column in ("train_loss", "train_accuracy", "test_loss", "test_accuracy", "examples", "steps"):
            assert rows[column].iloc[0] == pytest.approx(rows[column].iloc[1], rel=1e-4)


def test_a_rank_killed_once_a_state_is_kept(running: subprocess.Popen[str], tmp_path: Path) -> None:
    wait_for(lambda: len(kept(tmp_path / "results")) > 0, running)
    first, second = ranks(running)
    second.kill()
    _, errors = running.communicate(timeout=200)
    assert running.returncode == 0, errors
    assert not first.is_running(), "all ranks start again"
    cell = read_results(tmp_path / "results").cells.iloc[0]
    assert (cell.status, cell.message) == ("ok", "rank 1 was killed by SIGKILL; went on from the last checkpoint")
    (tmp_path / "whole").mkdir()
    assert bnpbench("run", suite(tmp_path / "whole", LONG), cwd=tmp_path / "whole").returncode == 0
    assert len(epochs(tmp_path)) == 8
    assert epochs(tmp_path).equals(epochs(tmp_path / "whole")), "bit for bit"


@pytest.mark.parametrize("how", ["Ctrl-C", "the run is killed", "the child is killed"])
def test_no_rank_is_left_behind(how: str, running: subprocess.Popen[str]) -> None:
    both = ranks(running)
    assert len(both) == 2
    child = both[0].parent()
    assert child is not None
    if how == "Ctrl-C":
        running.send_signal(signal.SIGINT)
    elif how == "the run is killed":
        running.kill()
    else:
        child.kill()
    running.communicate(timeout=30)
    assert running.returncode == {"Ctrl-C": 130, "the run is killed": -9, "the child is killed": 3}[how]
    _, alive = psutil.wait_procs(both, timeout=5)
    assert not alive


def test_a_rank_that_is_killed_again_and_again(running: subprocess.Popen[str], tmp_path: Path) -> None:
    """Three restarts, then the cell has the fault."""
    killed: set[int] = set()
    while running.poll() is None:
        for process in ranks(running)[1:]:
            if process.pid not in killed:
                killed.add(process.pid)
                process.kill()
        time.sleep(0.02)
    assert running.returncode == 3
    assert len(killed) == 4
    cell = read_results(tmp_path / "results").cells.iloc[0]
    assert (cell.status, cell.message) == ("crashed", "the process was killed by SIGKILL")


def test_a_timeout_ends_all_ranks(tmp_path: Path) -> None:
    with started("run", suite(tmp_path, LONG), "--timeout", "2", cwd=tmp_path) as process:
        wait_for(lambda: len(ranks(process)) == 2, process)
        both = ranks(process)
        process.communicate(timeout=60)
    assert process.returncode == 3
    assert read_results(tmp_path / "results").cells.status.item() == "timeout"
    assert not psutil.wait_procs(both, timeout=5)[1]


NORMS = """
from typing import Literal

from bnpbench import MethodPlugin


class Weak(MethodPlugin):
    kind: Literal["weak"]

    def layer(self, features, spatial_dims, site):
        import torch

        class Layer(torch.nn.Identity):
            def forward(self, x):
                group = torch.distributed
                if self.training and group.is_initialized() and group.get_rank() == 1:
                    raise ValueError("the second device is weak")
                return x

        return Layer()
"""


def test_an_error_on_one_rank_is_the_cells(tmp_path: Path) -> None:
    """Told as it is, and at once, though the other rank waits in a collective."""
    (tmp_path / "norms.py").write_text(NORMS)
    text = 'plugins = ["norms.py"]\n' + SHORT.replace('"bnp"', '"weak"')
    done = bnpbench("run", suite(tmp_path, text), "--allow-plugins", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    cell = read_results(tmp_path / "results").cells.iloc[0]
    assert (cell.status, cell.message) == ("error", "ValueError: the second device is weak (norms.py:17)")


def test_more_devices_than_there_are(tmp_path: Path) -> None:
    text = LONG.replace("devices = 2", "devices = 1000").replace("batch_size = 3", "batch_size = 1000")
    done = bnpbench("run", suite(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 2
    assert "devices = 1000: on the CPU each takes a core" in done.stderr
    assert not list(tmp_path.rglob("*.parquet"))
