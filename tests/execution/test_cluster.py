"""Sweeps on a Ray cluster: nodes die, come late, or are not fit; the results are those of a local run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bnpbench import read_results
from tests.support.command import LONG, SUITE, bnpbench, start, suite
from tests.support.kept import kept
from tests.support.plugins import PLUGIN
from tests.support.plugins import SUITE as PLUGIN_SUITE
from tests.support.raynodes import RAY, RayNodes
from tests.support.timeless import timeless

pytestmark = [
    pytest.mark.alone,
    pytest.mark.timeout(900),  # a busy machine may start Ray's processes again and again
]
needs_ray = pytest.mark.skipif(not RAY.exists(), reason="Ray is not installed: pip install -e '.[cluster]'")

MANY = SUITE.replace("seed = [1, 2]", f"seed = {list(range(1, 21))}").replace("epochs = 2", "epochs = 15")
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
    deadline = time.monotonic() + WAIT
    while len(finished(folder)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_ray
def test_a_node_dies_and_one_comes_late(cluster: RayNodes, local: Path, tmp_path: Path) -> None:
    process = start("run", suite(tmp_path, MANY), "--cluster", cluster.address, cwd=tmp_path)
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
        assert timeless(a, "worker").equals(timeless(b, "worker"))
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
    process = start("run", path, "--cluster", cluster.address, cwd=tmp_path)
    deadline = time.monotonic() + WAIT
    while not list(tmp_path.glob("results/long/*/checkpoints/*.pt")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
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
    process = start("run", suite(tmp_path, MANY), "--cluster", cluster.address, cwd=tmp_path)
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
    assert timeless(done, "worker").equals(timeless(same, "worker"))


@needs_ray
def test_nodes_that_share_cores_take_no_times_side_by_side(cluster: RayNodes, tmp_path: Path) -> None:
    path = suite(tmp_path, SUITE + '[measure]\ninterleave = ["method"]\n')
    done = bnpbench("run", path, "--cluster", cluster.address, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells = read_results(tmp_path / "results").cells
    assert len(cells) == 4
    assert cells.worker.nunique() == 1
    assert f"{len(cluster.nodes) - 1} workers wait: they share cores" in done.stderr


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
@pytest.mark.parametrize("package", ["bnpbench", "torch"])
def test_a_node_of_another_version_is_refused(cluster: RayNodes, tmp_path: Path, package: str) -> None:
    other = tmp_path / "other"
    (other / f"{package}-0.0.7.dist-info").mkdir(parents=True)
    (other / f"{package}-0.0.7.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.7\n"
    )
    node = cluster.add({"PYTHONPATH": os.pathsep.join([str(other), *filter(None, [os.environ.get("PYTHONPATH")])])})
    try:
        done = bnpbench("run", suite(tmp_path), "--cluster", cluster.address, cwd=tmp_path)
    finally:
        cluster.remove(node)
    assert done.returncode == 2, done.stderr
    assert f"has {package} 0.0.7, this run has {package} " in done.stderr
    assert not (tmp_path / "results").exists()


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
  "rmsnorm", "bnp",
]
"""
)


@needs_ray
def test_a_cluster_of_this_machine_alone_where_cells_crash_hang_and_take_their_worker_along(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FATAL)
    path = suite(tmp_path, FATAL_SUITE, "own.toml")
    done = bnpbench("run", path, "--allow-plugins", "--cluster", "local", "--timeout", "15", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    cells = read_results(tmp_path / "results").cells.set_index("label")
    crashed, hung, lost = (cells.loc[f"faulty(how={how})"] for how in ("exit", "hang", "take"))
    assert (crashed.status, hung.status, lost.status) == ("crashed", "timeout", "crashed")
    assert "exit code 7" in crashed.message
    assert "was lost" in lost.message
    assert done.stderr.count("runs again on another") == 2
    assert dict(cells.status[["rmsnorm", "bnp"]]) == {"rmsnorm": "ok", "bnp": "ok"}
    folder = next(tmp_path.glob("results/own/*/logs")).parent
    for cell in (crashed, hung):
        assert (folder / cell.log).read_text().count("tried") == 1


def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\")\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = bnpbench("run", suite(tmp_path), "--cluster", "auto", cwd=tmp_path, env={"PYTHONPATH": path})
    assert done.returncode == 2
    assert "pip install 'bnpbench[cluster]'" in done.stderr


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:9", "nowhere", "ray://127.0.0.1:10001"])
def test_an_address_without_a_cluster(address: str, tmp_path: Path) -> None:
    done = bnpbench("run", suite(tmp_path), "--cluster", address, cwd=tmp_path)
    assert done.returncode == 2
    assert f"--cluster {address}: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_local_run_does_not_import_ray(tmp_path: Path) -> None:
    code = (
        "import sys; from bnpbench import load_suite, run_suite;"
        f"run_suite(load_suite({str(suite(tmp_path))!r}), 'out', seeds=1, only=('method=vanilla',));"
        "assert 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
