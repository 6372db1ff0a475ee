"""Sweeps on a Ray cluster: nodes die, come late, or are not fit; the results are those of a local run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from bnpbench import load_suite, read_results
from bnpbench.errors import DeviceError
from bnpbench.execution.cluster.connection import Node
from bnpbench.execution.cluster.executor import RemoteChild, device_of, places_on
from bnpbench.execution.cluster.host import Report
from bnpbench.execution.messages import RunBlock
from bnpbench.suite import Suite
from tests.support.command import LONG, SUITE, bnpbench, started, suite
from tests.support.kept import kept
from tests.support.plugins import PLUGIN
from tests.support.plugins import SUITE as PLUGIN_SUITE
from tests.support.processes import wait_for
from tests.support.raynodes import RAY, RayNodes
from tests.support.timeless import timeless

ALONE = (
    pytest.mark.alone,
    pytest.mark.timeout(900),  # a busy machine may start Ray's processes again and again
    pytest.mark.skipif(not RAY.exists(), reason="Ray is not installed: pip install -e '.[cluster]'"),
)


def needs_ray(test: Callable[..., None]) -> Callable[..., None]:
    for mark in ALONE:
        test = mark(test)
    return test


MANY = SUITE.replace("seed = [1, 2]", f"seed = {list(range(1, 21))}").replace("epochs = 2", "epochs = 8")
WAIT = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """Two nodes at first."""
    with RayNodes() as nodes:
        nodes.add()
        nodes.add()
        yield nodes


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local")
    done = bnpbench("run", suite(folder, MANY), "--jobs", "2", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "results"


def finished(folder: Path) -> list[Path]:
    return list(folder.glob("results/tiny/*/cells/*.parquet"))


def wait_until_finished(count: int, folder: Path, process: subprocess.Popen[str]) -> None:
    wait_for(lambda: len(finished(folder)) >= count, process, WAIT)


@needs_ray
def test_a_node_dies_and_one_comes_late(cluster: RayNodes, local: Path, tmp_path: Path) -> None:
    with started("run", suite(tmp_path, MANY), "--cluster", cluster.address, cwd=tmp_path) as process:
        wait_until_finished(4, tmp_path, process)
        doomed = cluster.nodes[0]
        orphans = cluster.of(doomed)
        assert len(orphans) >= 3  # the worker, its forkserver and the process that measures
        cluster.lose(doomed)
        cluster.add()
        output, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 0, errors
    ours, theirs = read_results(tmp_path / "results"), read_results(local)
    assert not ours.damaged
    for a, b in ((ours.cells, theirs.cells), (ours.epochs, theirs.epochs)):
        assert timeless(a, "worker", "jobs").equals(timeless(b, "worker", "jobs"))
    assert len(ours.cells) == ours.cells.key.nunique() == errors.count(": ok (") == 40
    assert ours.cells.worker.nunique() == 3
    assert ours.cells.worker.str.fullmatch(r"node-[0-9a-f]{8}").all()
    assert "was lost" in errors
    assert output.startswith("# tiny on ")  # nothing of Ray's is among it
    assert "raylet" not in output + errors
    _, alive = psutil.wait_procs(orphans, timeout=20)
    assert not alive


@needs_ray
def test_a_long_cell_goes_on_on_another_node_from_what_came_back(cluster: RayNodes, tmp_path: Path) -> None:
    path = suite(tmp_path, LONG, "long.toml")
    with started("run", path, "--cluster", cluster.address, cwd=tmp_path) as process:
        wait_for(lambda: len(kept(tmp_path / "results")) > 0, process, WAIT)
        before = kept(tmp_path / "results")
        busy = next(node for node in cluster.nodes if cluster.is_busy(node))
        cluster.lose(busy)
        cluster.add()
        _, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 0, errors
    assert "was lost" in errors
    assert bnpbench("run", path, "--out", "whole", cwd=tmp_path).returncode == 0
    ours, theirs = read_results(tmp_path / "results"), read_results(tmp_path / "whole")
    assert timeless(ours.epochs).equals(timeless(theirs.epochs))
    assert ours.epochs.train_seconds.iloc[0] == before.train_seconds.iloc[0]  # not measured again
    assert not list(tmp_path.rglob("*.pt"))


@needs_ray
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_keeps_what_is_finished_and_leaves_no_process(
    cluster: RayNodes, local: Path, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with started("run", suite(tmp_path, MANY), "--cluster", cluster.address, cwd=tmp_path) as process:
        wait_until_finished(3, tmp_path, process)
        measuring = cluster.measuring()
        assert len(measuring) >= 3
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    assert "is kept" in errors
    assert "Traceback" not in errors
    _, alive = psutil.wait_procs(measuring, timeout=10)
    assert not alive
    ours, theirs = read_results(tmp_path / "results"), read_results(local)
    done = ours.cells[ours.cells.status == "ok"]
    assert 3 <= len(done) < 40
    assert set(ours.cells.status) <= {"ok", "interrupted"}  # at times all workers are between two cells
    same = theirs.cells[theirs.cells.key.isin(done.key)]
    assert timeless(done, "worker", "jobs").equals(timeless(same, "worker", "jobs"))


@needs_ray
def test_nodes_that_share_cores_take_no_times_side_by_side(cluster: RayNodes, tmp_path: Path) -> None:
    path = suite(tmp_path, SUITE + '[measure]\ninterleave = ["method"]\n')
    done = bnpbench("run", path, "--cluster", cluster.address, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells = read_results(tmp_path / "results").cells
    assert len(cells) == 4
    assert cells.worker.nunique() == 1
    waiting = len(cluster.nodes) - 1
    assert f"{waiting} worker{'s wait' if waiting > 1 else ' waits'}, as cores are shared" in done.stderr


@needs_ray
def test_a_gpu_that_no_node_has_is_an_error_at_once(cluster: RayNodes, tmp_path: Path) -> None:
    done = bnpbench("run", suite(tmp_path), "--cluster", cluster.address, "--device", "cuda", cwd=tmp_path)
    assert done.returncode == 2
    assert "no node of the cluster has a GPU" in done.stderr
    assert not (tmp_path / "results").exists()


@needs_ray
def test_a_node_without_the_data_is_named(cluster: RayNodes, tmp_path: Path) -> None:
    path = suite(
        tmp_path, SUITE.replace('{ kind = "synthetic", shape = [12], train = 203, test = 50, classes = 4 }', '"mnist"')
    )
    done = bnpbench(
        "run", path, "--cluster", cluster.address, "--offline", "--data-dir", tmp_path / "none", cwd=tmp_path
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("node-") == len(cluster.nodes)
    assert "bnpbench data get mnist" in done.stderr
    assert not (tmp_path / "results").exists()


@needs_ray
def test_a_node_of_another_version_is_refused(cluster: RayNodes, tmp_path: Path) -> None:
    packages = ("bnpbench", "torch")
    others = {package: tmp_path / "other" / f"{package}-0.0.7.dist-info" for package in packages}
    for package, other in others.items():
        other.mkdir(parents=True)
        (other / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.7\n")
    path = [str(tmp_path / "other"), *filter(None, [os.environ.get("PYTHONPATH")])]
    node = cluster.add({"PYTHONPATH": os.pathsep.join(path)})
    try:
        for package in packages:
            done = bnpbench("run", suite(tmp_path), "--cluster", cluster.address, cwd=tmp_path)
            assert done.returncode == 2, done.stderr
            assert f"has {package} 0.0.7, this run has {package} " in done.stderr
            assert not (tmp_path / "results").exists()
            shutil.rmtree(others[package])  # the next one is found to be another
    finally:
        cluster.remove(node)


FATAL = PLUGIN.replace(
    'if self.how == "exit":', 'print("tried", flush=True)\n                    if self.how == "exit":'
).replace(
    'if self.how == "put":',
    """if self.how == "hang":
                        import time
                        time.sleep(1000)
                    if self.how == "take":
                        import multiprocessing, signal
                        os.kill(multiprocessing.parent_process().pid, signal.SIGKILL)
                    if self.how == "put":""",
)
FATAL_SUITE = (
    PLUGIN_SUITE.partition("method = ")[0]
    + """method = [
  { kind = "faulty", how = "exit" }, { kind = "faulty", how = "hang" }, { kind = "faulty", how = "take" },
  "rms", "bnp",
]
"""
)


@needs_ray
def test_a_cluster_of_this_machine_alone_where_cells_crash_hang_and_take_their_worker_along(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FATAL)
    path = suite(tmp_path, FATAL_SUITE, "own.toml")
    done = bnpbench("run", path, "--allow-plugins", "--cluster", "local", "--timeout", "10", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    cells = read_results(tmp_path / "results").cells.set_index("label")
    crashed, hung, lost = (cells.loc[f"faulty(how={how})"] for how in ("exit", "hang", "take"))
    assert (crashed.status, hung.status, lost.status) == ("crashed", "timeout", "crashed")
    assert "exit code 7" in crashed.message
    assert "was lost" in lost.message
    assert done.stderr.count("runs again on another") == 2
    assert dict(cells.status[["rms", "bnp"]]) == {"rms": "ok", "bnp": "ok"}
    folder = next(tmp_path.glob("results/own/*/logs")).parent
    for cell in (crashed, hung):
        assert (folder / cell.log).read_text().count("tried") == 1


HEAD, PLAIN, GPUS = Node("0" * 56, 0, 0), Node("12ab34cd" * 7, 8, 0), Node("ffeeddcc" * 7, 8, 2)


def load(folder: Path, devices: str = '["auto"]') -> Suite:
    return load_suite(suite(folder, f"{SUITE}device = {devices}\n"))


@pytest.mark.parametrize(
    ("device", "devices", "jobs", "names"),
    [
        ("cpu", '["auto"]', 1, ["node-12ab34cd", "node-ffeeddcc"]),
        ("cpu", '["auto"]', 2, ["node-12ab34cd/1", "node-12ab34cd/2", "node-ffeeddcc/1", "node-ffeeddcc/2"]),
        ("cuda", '["auto"]', 1, ["node-ffeeddcc/1", "node-ffeeddcc/2"]),
        ("cpu", '["cpu", "cuda"]', 1, ["node-12ab34cd", "node-ffeeddcc/1", "node-ffeeddcc/2"]),
    ],
)
def test_a_gpu_is_a_place_and_so_is_a_node_without(
    tmp_path: Path, device: str, devices: str, jobs: int, names: list[str]
) -> None:
    places = places_on([HEAD, PLAIN, GPUS], device, load(tmp_path, devices), jobs)
    assert [place.name for place in places] == names
    assert {place.node for place in places if place.gpu} == ({GPUS} if "cuda" in device + devices else set())
    assert HEAD not in {place.node for place in places}


def test_no_more_places_than_cpus(tmp_path: Path) -> None:
    assert len(places_on([PLAIN], "cpu", load(tmp_path), 20)) == 8


@pytest.mark.parametrize(
    ("asked", "nodes", "device"),
    [
        ("auto", [PLAIN], "cpu"),
        ("auto", [PLAIN, GPUS], "cuda"),
        ("cpu", [GPUS], "cpu"),
        ("cuda", [PLAIN, GPUS], "cuda"),
    ],
)
def test_what_auto_means(tmp_path: Path, asked: str, nodes: list[Node], device: str) -> None:
    assert device_of(asked, load(tmp_path), nodes) == device


@pytest.mark.parametrize(
    ("asked", "devices", "words"),
    [("cuda", '["auto"]', "--device cuda: no node"), ("auto", '["cuda"]', 'device = "cuda": no node')],
)
def test_a_gpu_that_no_node_has(tmp_path: Path, asked: str, devices: str, words: str) -> None:
    with pytest.raises(DeviceError, match=words):
        device_of(asked, load(tmp_path, devices), [HEAD, PLAIN])


@pytest.mark.parametrize("asked", ["cuda:0", "tpu"])
def test_which_gpu_is_rays_to_say(tmp_path: Path, asked: str) -> None:
    with pytest.raises(DeviceError, match="auto, cpu or cuda"):
        device_of(asked, load(tmp_path), [GPUS])


def test_what_comes_back_from_a_node_is_written_through_no_link(tmp_path: Path) -> None:
    treasure, states, log = tmp_path / "treasure", tmp_path / "checkpoints", tmp_path / "log"
    treasure.write_text("dear")
    states.mkdir()
    (block,) = load(tmp_path).blocks(load(tmp_path).cells(device="cpu", threads=1, only=["method=bnp", "seed=1"]))
    key = block.cells[0].key
    for path in (log, states / f"{key}.pt", states / f".{block.id}.tmp"):
        path.symlink_to(treasure)
    asked: list[Any] = []

    def ask(actor: Any, method: str, *arguments: Any) -> Future[Report]:
        asked.append(arguments)
        answer: Future[Report] = Future()
        answer.set_result(Report(checkpoints={key: b"state"}, death="ended", log=b"printed"))
        return answer

    request = RunBlock(block, block.cells, {}, None, states, False, None, 0, "log")
    worker = SimpleNamespace(actor=None, folder=Path("there"))
    remote = RemoteChild(SimpleNamespace(ask=ask), worker, lambda worker: None, request, log)  # type: ignore[arg-type]
    assert asked[0][1] == {}, "a link is no state"
    assert not remote.alive()
    assert treasure.read_text() == "dear"
    assert (states / f"{key}.pt").read_bytes() == b"state"
    assert log.read_bytes() == b"printed"
    assert not any(path.is_symlink() for path in (log, *states.iterdir()))
