"""Runs that are stopped, killed or crash: what was measured stays, and a second run finishes the rest."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bnpbench import read_results
from tests.support.command import LONG, SUITE, bnpbench, environment, started, suite
from tests.support.kept import kept
from tests.support.processes import below, wait_for
from tests.support.timeless import timeless

MANY = SUITE.replace("seed = [1, 2]", "seed = [1, 2, 3]").replace("epochs = 2", "epochs = 25")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert bnpbench("run", suite(folder, MANY), cwd=folder).returncode == 0
    return folder / "results"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A sweep in the middle: some cells are finished, some are not."""
    with started("run", suite(tmp_path, MANY), cwd=tmp_path) as process:
        wait_for(lambda: len(finished(tmp_path)) >= 2, process)
        yield process


def finished(folder: Path) -> list[Path]:
    return list(folder.glob("results/tiny/*/cells/*.parquet"))


def assert_complete(folder: Path, undisturbed: Path) -> None:
    again = bnpbench("run", "tiny.toml", cwd=folder)
    assert again.returncode == 0, again.stderr
    ours, theirs = read_results(folder / "results"), read_results(undisturbed)
    assert not ours.damaged
    unlike = ("environment", "log", "commit", "dirty")
    for a, b in ((ours.epochs, theirs.epochs), (ours.cells, theirs.cells)):
        assert timeless(a, *unlike).equals(timeless(b, *unlike))


def test_killed_whole_and_run_again(running: subprocess.Popen[str], tmp_path: Path, undisturbed: Path) -> None:
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    kept = finished(tmp_path)
    assert 0 < len(kept) < 6
    before = {path: path.stat().st_mtime_ns for path in kept}
    assert_complete(tmp_path, undisturbed)
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_by_a_signal(
    running: subprocess.Popen[str], number: signal.Signals, code: int, tmp_path: Path, undisturbed: Path
) -> None:
    children = psutil.Process(running.pid).children(recursive=True)
    begin = time.monotonic()
    running.send_signal(number)
    _, errors = running.communicate(timeout=20)
    assert time.monotonic() - begin < 5
    assert running.returncode == code
    assert "is kept" in errors
    assert "Traceback" not in errors
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive
    assert not list(tmp_path.rglob("*.tmp"))
    assert_complete(tmp_path, undisturbed)


A_BAR = """
import multiprocessing
from multiprocessing import resource_tracker
import bnpbench.execution.preload, torch.hub
multiprocessing.set_start_method("forkserver")  # as it is in a child
torch.hub.tqdm(total=1, disable=True)
torch.hub.tqdm.get_lock()
assert resource_tracker._resource_tracker._pid is None  # it starts with the first semaphore
"""


@pytest.mark.regression
def test_a_bar_of_torch_in_a_child_leaves_nothing_behind() -> None:
    """Where a child was killed while torch compiled, Python warned of a leaked semaphore behind the last line."""
    pytest.importorskip("tqdm")
    done = subprocess.run([sys.executable, "-c", A_BAR], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_that_crashes_costs_its_cell_only(running: subprocess.Popen[str], tmp_path: Path) -> None:
    finishing = below(running.pid, generation=2)  # the forkserver's child, not the forkserver
    while not (begun := [process for process in below(running.pid, generation=2) if process not in finishing]):
        assert running.poll() is None
    begun[0].send_signal(signal.SIGSEGV)
    output, errors = running.communicate(timeout=120)
    assert running.returncode == 3, errors
    results = read_results(tmp_path / "results")
    crashed = results.cells[results.cells.status == "crashed"]
    assert len(crashed) == 1
    assert "SIGSEGV" in crashed.message.iloc[0]
    assert (results.cells.status == "ok").sum() == 5
    assert "SIGSEGV" in output
    log = next(tmp_path.glob("results/tiny/*/logs")).parent / crashed.log.iloc[0]
    assert log.is_file()


def test_a_server_of_processes_that_is_killed_costs_no_cell(
    running: subprocess.Popen[str], tmp_path: Path, undisturbed: Path
) -> None:
    server = next(p for p in below(running.pid, generation=1) if "forkserver" in " ".join(p.cmdline()))
    at_work = server.children()
    server.kill()
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    assert "bug" not in errors
    _, alive = psutil.wait_procs(at_work, timeout=5)
    assert not alive
    assert_complete(tmp_path, undisturbed)


def test_logs_may_be_cleared_away_while_it_runs(running: subprocess.Popen[str], tmp_path: Path) -> None:
    (logs,) = tmp_path.glob("results/tiny/*/logs")
    shutil.rmtree(logs)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    assert set(read_results(tmp_path / "results").cells.status) == {"ok"}


def test_a_folder_that_is_removed_while_it_runs_is_no_bug(running: subprocess.Popen[str], tmp_path: Path) -> None:
    (tmp_path / "results" / "tiny").rename(tmp_path / "gone")  # at once: files are made while a tree is removed
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 2, errors
    assert "results cannot be written here" in errors


def test_a_long_cell_goes_on_from_its_last_epoch_bit_for_bit(tmp_path: Path) -> None:
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
        suite(tmp_path / name, LONG, "long.toml")
    with started("run", "long.toml", cwd=tmp_path / "killed") as process:
        wait_for(lambda: len(kept(tmp_path / "killed" / "results")) > 0, process)  # a state, and epochs
    for name in ("killed", "whole"):
        assert bnpbench("run", "long.toml", cwd=tmp_path / name).returncode == 0
    killed, whole = (read_results(tmp_path / name / "results") for name in ("killed", "whole"))
    assert len(killed.epochs) == 8
    assert timeless(killed.epochs, "environment").equals(timeless(whole.epochs, "environment"))
    assert not list(tmp_path.rglob("*.pt"))


IN_A_CALLBACK = """
import gc, os, signal, sys
from bnpbench.cli import main
from bnpbench.execution.progress import Reporter

number, moment = int(sys.argv.pop()), sys.argv.pop()

def stop(phase, info):
    if phase == "start":
        gc.callbacks.remove(stop)
        os.kill(os.getpid(), number)

def collect(real):
    def told(*arguments, **options):
        real(*arguments, **options)
        gc.callbacks.append(stop)
        gc.collect()
        setattr(Reporter, moment, real)
    return told

signal.signal(signal.SIGINT, signal.default_int_handler)
setattr(Reporter, moment, collect(getattr(Reporter, moment)))
main()
"""


@pytest.mark.parametrize(
    ("number", "moment", "code"), [(signal.SIGTERM, "epoch", 143), (signal.SIGINT, "epoch", 130), (15, "stop", 143)]
)
def test_a_signal_inside_a_callback_is_not_lost(number: int, moment: str, code: int, tmp_path: Path) -> None:
    """Python prints and drops an exception there: the sweep went on to its end, with exit code 0."""
    suite(tmp_path, MANY)
    arguments = ["run", "tiny.toml", moment, str(int(number))]
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CALLBACK, *arguments], cwd=tmp_path, env=environment(None), capture_output=True
    )
    assert b"Exception ignored in" in done.stderr
    assert done.returncode == code, done.stderr
    assert b"is kept" in done.stderr
    assert (len(finished(tmp_path)) < 6) == (moment == "epoch")
