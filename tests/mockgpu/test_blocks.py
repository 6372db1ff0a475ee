"""Blocks of cells on a mock GPU: what is recorded of each, and what a failing one leaves to the others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mockgpu import WORK, MockGpu, work

FAILING = [
    "nvmlDeviceGetClockInfo=3",
    "nvmlDeviceGetCurrentClocksEventReasons=999",
    "nvmlDeviceGetTotalEnergyConsumption=15",
    "nvmlDeviceGetHandleByUUID=6",
    "nvmlInit=12",
]

TOGETHER = ["profiled", "deterministic", "fp16", "memory", "broken_capture", "failed_capture", "out_of_memory"]


@pytest.fixture(scope="module")
def found(mockgpu: MockGpu) -> dict[str, Any]:
    """In one process, which takes seconds to start."""
    return mockgpu.found("together", {"nvml": [FAILING], **{name: [] for name in TOGETHER}})


@pytest.mark.regression
def test_no_error_of_nvml_ends_a_cell(found: dict[str, Any]) -> None:
    """One at the end of a cell lost its epochs."""
    rows = dict(zip(FAILING, found["nvml"], strict=True))
    assert {row["status"] for row in rows.values()} == {"ok"}
    told = {call: (row["clock_mhz_after"], row["throttled"]) for call, row in rows.items()}
    assert told == dict(
        zip(FAILING, [(None, True), (1900, None), (1900, True), (None, None), (None, None)], strict=True)
    )


@pytest.mark.regression
def test_kernels_of_the_backward_pass_are_its_own(found: dict[str, Any]) -> None:
    """Their time was near 0, for they are launched by another thread than the one that marks the phases."""
    profile = found["profiled"]
    assert profile["kernels"] == 34
    one = profile["step"] / 34
    kernels = {phase: round(time / one) for phase, time in profile["phases"].items()}
    assert kernels == {"data": 2, "forward": 7, "backward": 14, "precondition": 8, "update": 3}


@pytest.mark.regression
def test_deterministic_algorithms_fill_nothing(found: dict[str, Any]) -> None:
    """torch fills every empty tensor then: a step had twice the kernels. Here ten are of another way to copy."""
    free, deterministic = (row["work kernel"] for row in found["deterministic"])
    assert deterministic == free + 10


def test_a_step_that_scales_its_loss_waits_for_nothing(found: dict[str, Any]) -> None:
    eager, graphed = found["fp16"]
    assert (eager["active"], graphed["active"]) == ("eager", "graphed(eager)")
    assert eager["step"].keys() <= WORK
    assert graphed["step"].keys() <= WORK | {"replay"}
    assert work(graphed) == work(eager)


@pytest.mark.regression
def test_memory_is_that_of_the_steps_whoever_comes_first(found: dict[str, Any]) -> None:
    """The first member of a block was charged with cuBLAS's workspaces, all with what warming up and compiling took."""
    blocks = found["memory"]
    for engine in ("eager", "graphed"):
        alone = blocks[f"{engine} bnp"]["bnp"]["peak_memory_bytes"]
        assert 0 < alone < 2**20
        kept = blocks[f"{engine} bnp"]["bnp"]["graph_memory_bytes"]
        assert kept is None if engine == "eager" else 0 < kept < 2**20
        for chosen in ("vanilla bnp", "bnp vanilla"):
            found_again = blocks[f"{engine} {chosen}"]["bnp"]
            assert (found_again["peak_memory_bytes"], found_again["graph_memory_bytes"]) == (alone, kept)
    assert blocks["eager cold"]["bnp"]["peak_memory_bytes"] == blocks["eager bnp"]["bnp"]["peak_memory_bytes"]


@pytest.mark.regression
def test_a_capture_that_breaks_names_its_cause_and_leaves_the_others_alone(found: dict[str, Any]) -> None:
    """The cause was hidden by what the end of the capture said, and all that followed ran in the capture's stream."""
    rows = found["broken_capture"]["rows"]
    assert found["broken_capture"]["stream"]
    assert {label: row["status"] for label, row in rows.items()} == {
        "vanilla": "ok",
        "renorm": "error",
        "bn": "ok",
        "bnp": "ok",
    }
    assert "operation not permitted when stream is capturing" in rows["renorm"]["message"]
    assert rows["bn"]["peak_memory_bytes"] < 2**20
    assert {rows[label]["engine_active"] for label in ("bn", "bnp")} == {"graphed(eager)"}


def test_a_capture_that_comes_to_nothing_ends_one_cell(found: dict[str, Any]) -> None:
    failed, next_one = found["failed_capture"]
    assert failed["status"] == "error"
    assert 'cannot be recorded as a CUDA graph, take engine = "eager" or "compiled"' in failed["message"]
    assert (next_one["status"], next_one["engine_active"]) == ("ok", "graphed(eager)")


@pytest.mark.regression
def test_a_cell_out_of_memory_leaves_none_of_it_behind(found: dict[str, Any]) -> None:
    """Its tensors stayed until the next collection, in the way of the cells that followed."""
    memory = found["out_of_memory"]
    assert [memory["rows"][label]["status"] for label in ("vanilla", "bn", "bnp")] == ["ok", "oom", "ok"]
    assert memory["allocated"]["bnp"] == memory["allocated"]["bn"]
    assert memory["wide"]["status"] == "oom"
    assert "Tried to allocate" in memory["wide"]["message"]


@pytest.mark.regression
@pytest.mark.parametrize(("prefix", "mig"), [("GPU", 0), ("MIG", 1)])
def test_devices_may_be_chosen_by_their_uuid(mockgpu: MockGpu, prefix: str, mig: int) -> None:
    """torch's own question for the clock could not read such a list of devices, and ended the cell."""
    uuid = f"{prefix}-{'-'.join(('00010203', '0405', '0607', '0809', '0a0b0c0d0e0f'))}"
    gpu = mockgpu.found("described", devices=2, mig=mig, CUDA_VISIBLE_DEVICES=uuid)
    assert (gpu["mig"], gpu["most_clock_mhz"], gpu["power_limit_watts"]) == (bool(mig), 1980, 700)
    assert (gpu["memory_bytes"], gpu["capability"], gpu["hip"], gpu["persistence"]) == (139 * 2**30, "9.0", None, False)
    assert ("energy" in gpu["untold"]) == bool(mig)
