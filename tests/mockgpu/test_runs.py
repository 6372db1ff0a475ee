"""The command line on a mock machine with GPUs, from end to end, and what it says where something is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bnpbench import read_results
from bnpbench.records.rows import CellRow, columns
from bnpbench.report.data import views
from tests.support.command import suite
from tests.support.mockgpu import ROOT, MockGpu
from tests.support.raynodes import RAY

SUITE = """
name = "small"
[train]
dataset = { kind = "synthetic", shape = [64], train = 320, test = 50, classes = 4 }
network = { kind = "fc", hidden = [32] }
optimizer = { kind = "sgd", lr = 0.1 }
epochs = 2
threads = 1
batch_size = 32
engine = "eager"
[sweep]
method = ["bnp", "bn", "vanilla"]
"""
TIMING = str(ROOT / "suites/timing.toml")
CHOSEN = (
    *("--only", "batch_size=256"),
    *("--set", 'dataset={kind="synthetic",shape=[3,32,32],train=2048,test=50,classes=10}'),  # of CIFAR-10's kind
)
PROFILE = ("profile", TIMING, *CHOSEN, "--compare", "bn,bnp", "--device", "cuda", "--steps", "3", "--format", "json")


def run(mockgpu: MockGpu, folder: Path, *arguments: str, **asked: object) -> Any:
    return mockgpu.run("-m", "bnpbench", *arguments, cwd=folder, **asked)


def cells(folder: Path) -> dict[str, Any]:
    """Rows of the results below a folder, by the method."""
    return {row["label"]: row for row in read_results(folder / "results").cells.to_dict("records")}


def devices_of(log: Path) -> list[set[str]]:
    """On which devices each process allocated."""
    allocations = [line.split() for line in log.read_text().splitlines() if " malloc " in line]
    devices = {process: {line[2] for line in allocations if line[0] == process} for process, *_ in allocations}
    return sorted(devices.values(), key=sorted)


def test_from_a_suite_to_a_report_on_two_devices(mockgpu: MockGpu, tmp_path: Path) -> None:
    """Table 1 by CUDA graphs, on the second device, which NVML counts as the first."""
    log = tmp_path / "log"
    asked = {"devices": 2, "nvml_reversed": 1, "log": log}
    done = run(mockgpu, tmp_path, "run", TIMING, *CHOSEN, "--epochs", "2", "--device", "cuda:1", "--quiet", **asked)
    assert done.returncode == 0, done.stderr
    assert {line.split()[2] for line in log.read_text().splitlines() if " malloc " in line} == {"1"}
    found = cells(tmp_path)
    assert found.keys() == {"vanilla", "bn", "bn-hidden", "bnp"}
    for row in found.values():
        assert (row["status"], row["engine"], row["engine_active"]) == ("ok", "graphed", "graphed(compiled)")
        assert (row["clock_mhz_before"], row["clock_mhz_after"], row["throttled"]) == (1901, 1901, True)
        assert row["peak_memory_bytes"] + row["graph_memory_bytes"] < 2**25  # what tunes kernels takes twice as much
    assert found["vanilla"]["kernels_per_step"] < found["bn"]["kernels_per_step"]
    results = read_results(tmp_path / "results")
    assert results.epochs.energy_joules.isna().all()  # of milliseconds
    (view,) = views(results)
    for cell in view.cells:
        if cell.row:
            numbers = {name for name, column in columns(CellRow).items() if column.metric and not column.metric.label}
            others = {"energy_joules", "sites_served", "flops_refresh"}  # of networks and methods that are others
            others |= set() if cell.kind == "bnp" else {"bnp_layers", "bnp_parameters", "method_state_bytes"}
            assert {name for name in numbers if cell.row[name] is None} == others
    report = run(mockgpu, tmp_path, "report")
    assert report.returncode == 0, report.stderr
    assert "- energy_joules is not known of 4 of 4 cells: " in report.stdout
    profile = run(mockgpu, tmp_path, *PROFILE, **asked)
    assert profile.returncode == 0, profile.stderr
    phases, _ = json.loads(profile.stdout)[0]["sections"][0]["tables"]
    assert {row[0] for row in phases["rows"]} >= {"backward", "precondition"}
    assert phases["columns"].count("on the device") == 2
    environment = run(mockgpu, tmp_path, "env", **asked)
    assert environment.returncode == 0, environment.stderr
    assert "gpu: Mock GPU 0" in environment.stdout
    assert "gpus: 2" in environment.stdout


@pytest.mark.regression
def test_without_cupti_a_profile_says_so(mockgpu: MockGpu, tmp_path: Path) -> None:
    """It told of 0 kernels, and ended with 0."""
    done = run(mockgpu, tmp_path, *PROFILE, cupti=0)
    assert done.returncode == 4, done.stderr
    for method in ("bn", "bnp"):
        assert (
            f"warning: {method}: no time on the device: the profiler saw no kernel: CUPTI is not there" in done.stderr
        )
    (section,) = json.loads(done.stdout)[0]["sections"]
    assert len(section["lines"]) == 2
    assert "on the device" not in section["tables"][0]["columns"]
    assert "kernels a step" not in done.stdout


@pytest.mark.regression
def test_two_jobs_have_a_device_each(mockgpu: MockGpu, tmp_path: Path) -> None:
    """All blocks were put on the first. Beside them another process computes there, which the report names."""
    suite(tmp_path, SUITE, "small.toml")
    log = tmp_path / "log"
    chosen = ("--jobs", "2", "--device", "cuda", "--only", "method=bn,vanilla")
    done = run(mockgpu, tmp_path, "run", "small.toml", *chosen, devices=2, processes=1, log=log)
    assert done.returncode == 0, done.stderr
    assert devices_of(log) == [{"0"}, {"1"}]
    assert "others compute on this GPU: other-1 (1)" in run(mockgpu, tmp_path, "report").stdout


@pytest.mark.alone
@pytest.mark.skipif(not RAY.exists(), reason="Ray is not installed: pip install -e '.[cluster]'")
def test_every_worker_of_a_cluster_has_a_device_of_its_own(mockgpu: MockGpu, tmp_path: Path) -> None:
    suite(tmp_path, SUITE, "small.toml")
    log = tmp_path / "log"
    chosen = ("--cluster", "local", "--device", "cuda", "--only", "method=bn,vanilla", "--quiet")
    done = run(mockgpu, tmp_path, "run", "small.toml", *chosen, devices=2, log=log)
    assert done.returncode == 0, done.stderr
    assert devices_of(log) == [{"0"}, {"1"}]


@pytest.mark.regression
def test_an_old_driver_leaves_the_cpu(mockgpu: MockGpu, tmp_path: Path) -> None:
    """One older than the wheels ended even a run on the CPU with "a bug in bnpbench"."""
    suite(tmp_path, SUITE, "small.toml")
    done = run(
        mockgpu, tmp_path, "run", "small.toml", "--device", "cpu", "--only", "method=bnp", "--quiet", driver=12040
    )
    assert done.returncode == 0, done.stderr
    refused = run(mockgpu, tmp_path, "run", "small.toml", "--device", "cuda", cuinit=999)
    assert refused.returncode == 2
    assert "cuInit gives 999 (CUDA_ERROR_UNKNOWN)" in refused.stderr
    for asked, reason in (({"driver": 12040}, "too old (found version 12040)"), ({"cuinit": 999}, "unknown error")):
        environment = run(mockgpu, tmp_path, "env", **asked)
        assert environment.returncode == 0, environment.stderr
        assert reason in environment.stdout


@pytest.mark.parametrize(
    ("gpu", "asked", "known"),
    [
        (1, {"devices": 2, "nvml_reversed": 1, "capability": 80}, True),
        (0, {"devices": 2, "mig": 1}, True),
        (0, {"devices": 1, "CUDA_VISIBLE_DEVICES": "-1"}, True),
        (0, {"devices": 1, "nvml": "nvmlInit=12"}, True),
        (0, {"devices": 1, "driver": 12040}, False),
        (0, {"cuinit": 999}, False),
    ],
)
def test_a_device_is_known_without_torch_as_torch_tells_it(
    gpu: int, asked: dict[str, object], known: bool, mockgpu: MockGpu
) -> None:
    here, told = mockgpu.found("recognized", gpu, **asked)
    assert here == (told if known else None)
