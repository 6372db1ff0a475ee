"""What only a CUDA device can show; skipped, with the reason, where there is none. ``nox -s gpu`` runs these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bnpbench.execution.child import configure
from bnpbench.measure import machine, rates
from bnpbench.measure.clock import CudaClock, clock_for
from bnpbench.measure.environment import describe
from bnpbench.training import engines
from bnpbench.training.examples import Resident
from bnpbench.training.step import set_precision
from bnpbench.training.trainer import Trainer
from tests.support.command import SUITE, bnpbench, suite
from tests.support.training import cell

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here"),
]
DEVICE = torch.device("cuda")
ROWS = {"kind": "synthetic", "shape": (64,), "train": 640, "test": 50, "classes": 5}
IMAGES = {"kind": "synthetic", "shape": (3, 32, 32), "train": 160, "test": 20, "classes": 5}
METHODS = ["vanilla", "bn", "bnp", {"kind": "bnp", "statistics": "batch"}, "4things", "renorm", "ln"]
OPTIMIZERS = [{"kind": "sgd", "lr": 0.1, "momentum": 0.9}, {"kind": "adam", "lr": 0.01}]


def trainer(**changes: Any) -> Trainer:
    made = cell(**{"dataset": ROWS, "batch_size": 32, "device": "cuda", **changes})
    set_precision(made.settings)
    return Trainer(made, Resident(made.settings, Path(), DEVICE), DEVICE)


def state(ours: Trainer) -> dict[str, Tensor]:
    found = {f"model.{name}": value for name, value in ours.model.state_dict().items()}
    found |= {f"bnp.{name}": value for name, value in (ours.bnp.state_dict() if ours.bnp else {}).items()}
    return {name: value.detach().double().contiguous() for name, value in found.items()}


def assert_steps_agree(eager: Trainer, other: Trainer, steps: int | None = None) -> None:
    """One step of each from every state along an epoch, or its first steps, of the eager one."""
    for batch in list(eager.examples.training(torch.randperm(640), 32, 0))[:steps]:
        other.state.restore(eager.state.snapshot())
        for ours in (eager, other):
            ours.engine.call(*batch)
        torch.testing.assert_close(state(other), state(eager), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o["kind"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_recorded_eager_steps_equal_eager_ones(
    monkeypatch: pytest.MonkeyPatch, method: Any, optimizer: dict[str, Any]
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("compiling takes long")

    monkeypatch.setattr(engines, "compiled", fails)
    assert_graphed_agrees("graphed(eager)", method=method, optimizer=optimizer)


@pytest.mark.compiles
@pytest.mark.parametrize("method", ["bn", "bnp"])
def test_recorded_compiled_steps_equal_eager_ones(method: str) -> None:
    torch._dynamo.reset()
    assert_graphed_agrees("graphed(compiled)", method=method)


def assert_graphed_agrees(active: str, **changes: Any) -> None:
    eager, graphed = (trainer(engine=e, **changes) for e in ("eager", "graphed"))
    before = state(graphed)
    graphed.prepare()
    assert graphed.engine.active == active
    torch.testing.assert_close(state(graphed), before, rtol=0, atol=0)  # capture and warm-up left no trace
    assert_steps_agree(eager, graphed)


@pytest.mark.compiles
@pytest.mark.parametrize("method", ["bn", "bnp"])
def test_a_compiled_step_equals_the_eager_one(method: str) -> None:
    torch._dynamo.reset()
    eager, compiled = (trainer(method=method, engine=e) for e in ("eager", "compiled"))
    compiled.prepare()
    assert compiled.engine.active == "compiled"
    assert_steps_agree(eager, compiled, steps=5)


@pytest.mark.compiles
@pytest.mark.parametrize("network", [{"kind": "fc", "hidden": (90, 7)}, {"kind": "cnn"}], ids=lambda n: n["kind"])
def test_fused_steps_of_bnp_equal_plain_ones(network: dict[str, Any]) -> None:
    rows = ROWS if network["kind"] == "fc" else {**IMAGES, "train": 640}
    plain, fused = (
        trainer(network=network, dataset=rows, method={"kind": "bnp", "form": form}) for form in ("plain", "fused")
    )
    for ours in (plain, fused):
        ours.prepare()
    assert (plain.columns()["bnp_form"], fused.columns()["bnp_form"]) == ("plain", "fused")
    assert_steps_agree(plain, fused, steps=5)


@pytest.mark.parametrize("engine", ["eager", pytest.param("graphed", marks=pytest.mark.compiles)])
def test_an_epoch_is_that_of_the_cpu(engine: str) -> None:
    """The same weights, order and examples whatever the device: after one epoch the losses agree."""
    here = trainer(method="bnp", engine=engine)
    here.prepare()
    there = cell(dataset=ROWS, batch_size=32, method="bnp", device="cpu")
    cpu = torch.device("cpu")
    row = Trainer(there, Resident(there.settings, Path(), cpu), cpu).epoch()
    assert here.epoch()["train_loss"] == pytest.approx(row["train_loss"], rel=1e-3)


@pytest.mark.parametrize("network", [{"kind": "cnn"}, {"kind": "resnet", "depth": 8}], ids=lambda n: n["kind"])
@pytest.mark.parametrize("method", ["vanilla", "bn", "bnp", "bnp+gn"])
def test_channels_last_equals_contiguous(method: str, network: dict[str, Any]) -> None:
    last, contiguous = (
        trainer(dataset=IMAGES, network=network, method=method, memory_format=f)
        for f in ("channels_last", "contiguous")
    )
    for ours in (last, contiguous):
        ours.step(torch.arange(32, device=DEVICE))
    torch.testing.assert_close(state(last), state(contiguous), rtol=1e-4, atol=1e-5)


def test_only_tf32_rounds_products_of_float32() -> None:
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("no TF32 before compute capability 8.0")
    x, y = (torch.randn(512, 512, device=DEVICE) for _ in range(2))
    images, kernel = torch.randn(8, 64, 16, 16, device=DEVICE), torch.randn(64, 64, 3, 3, device=DEVICE)
    errors = {}
    for name in ("float32", "tf32"):
        set_precision(cell(precision=name, device="cuda").settings)
        product, convolved = x @ y, torch.conv2d(images, kernel)
        errors[name] = [
            away(product, x.double() @ y.double()),
            away(convolved, torch.conv2d(images.double(), kernel.double())),
        ]
    set_precision(cell(device="cuda").settings)
    assert max(errors["float32"]) < 1e-5
    assert min(errors["tf32"]) > 1e-4


def away(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("method", ["bn", "bnp", "bnp+gn", "4things"])
def test_bf16_keeps_statistics_in_float32(method: str) -> None:
    ours = trainer(dataset=IMAGES, network={"kind": "cnn"}, method=method, precision="bf16")
    ours.step(torch.arange(32, device=DEVICE))
    kept = [*ours.model.state_dict().values(), *(ours.bnp.state_dict().values() if ours.bnp else ())]
    assert {value.dtype for value in kept if value.is_floating_point()} == {torch.float32}
    assert torch.isfinite(ours.step.loss_sum)


def test_the_clock_waits_for_the_device_and_leaves_pauses_out() -> None:
    milliseconds = busy(10.0)
    clock = clock_for(DEVICE, 4)
    assert isinstance(clock, CudaClock)
    clock.start()
    for lap in range(4):
        if lap == 2:
            clock.pause()
            busy(50.0)
            clock.resume()
        busy(10.0)
        clock.lap()
    reading = clock.stop()
    assert len(reading.laps) == 4
    assert reading.seconds == pytest.approx(sum(reading.laps), rel=0.2)
    assert reading.seconds == pytest.approx(4e-3 * milliseconds, rel=0.3)


def busy(milliseconds: float) -> float:
    """Keep the device busy for about so long; what it took by its own events, in ms."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(int(milliseconds * 1e-3 * machine.clock_mhz(DEVICE) * 1e6))  # type: ignore[operator]
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def test_nvml_answers() -> None:
    meter = machine.energy_meter(DEVICE).read
    before = meter()
    busy(300.0)
    after = meter()
    assert machine.throttled(DEVICE) in (True, False)
    assert (machine.clock_mhz(DEVICE) or 0) > 100
    assert before is None or (after is not None and 0 < after - before < 3000)
    environment = describe(torch.cuda.device_count() - 1)
    assert environment.hardware.gpu == torch.cuda.get_device_name(torch.cuda.device_count() - 1)
    assert environment.software.driver


def test_memory_of_two_that_take_turns() -> None:
    one, other = machine.DeviceMemory(DEVICE), machine.DeviceMemory(DEVICE)
    with one.turn():
        kept = torch.empty(2**20, device=DEVICE)
    with other.turn():
        torch.empty(2**18, device=DEVICE).zero_()
    with one.turn():
        clock = clock_for(DEVICE, 1)
        clock.start()
        _ = kept + 1
        one.stepped(clock.stop().peak_bytes)
    assert (one.held, one.peak) == (2**22, 2**23)
    assert (other.held, other.peak) == (0, 0)


def test_a_number_chooses_the_device() -> None:
    last = torch.cuda.device_count() - 1
    configure(cell(device="cuda").settings, last)
    assert torch.cuda.current_device() == last
    assert torch.empty(1, device="cuda").device.index == last


@pytest.mark.compiles
def test_a_run_on_cuda_0_and_one_on_a_device_that_is_not_there(tmp_path: Path) -> None:
    suite(tmp_path, SUITE.replace("threads = 1", 'threads = 1\nengine = "graphed"'))
    done = bnpbench("run", "tiny.toml", "--device", "cuda:0", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(bnpbench("report", "--format", "json", cwd=tmp_path).stdout)
    assert any("4: 4 ok" in line for line in told[0]["sections"][0]["lines"])
    refused = bnpbench("run", "tiny.toml", "--device", "cuda:99", cwd=tmp_path)
    assert refused.returncode == 2
    assert "numbered from 0" in refused.stderr


def test_peak_rates_are_in_their_order() -> None:
    found = {rate.quantity: rate for rate in rates._rates(DEVICE, None)}  # of this device alone
    assert set(found) == {"bandwidth", "float32", "tf32", "bf16", "operators", "recorded"}
    assert found["float32"].high < found["tf32"].high < found["bf16"].high
    assert found["bandwidth"].high > 1e11
