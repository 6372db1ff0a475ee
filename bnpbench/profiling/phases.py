"""Where the time of a step goes: torch's profiler over the phases of the eager step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as torch_profile

from bnpbench.datasets import storage
from bnpbench.errors import SuiteError
from bnpbench.execution.child import configure
from bnpbench.execution.messages import Profile, Profiled, Tell, Time
from bnpbench.files import fresh
from bnpbench.measure.kernels import NO_CUPTI, on_device
from bnpbench.training.examples import examples_of
from bnpbench.training.step import PHASES
from bnpbench.training.trainer import Trainer

STEP = "bnpbench: step"
PREFIX = "bnpbench: "


def profile(request: Profile, tell: Tell | None = None) -> Profiled:
    """Run some steps under the profiler, write the trace, and add up; there is nothing to tell meanwhile."""
    settings = request.cell.settings
    configure(settings, request.gpu)
    device = torch.device(settings.device)
    step = stepping(request)
    for _ in range(request.steps):
        step()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with torch_profile(activities=activities) as profiler:
        for _ in range(request.steps):
            with record_function(STEP):
                step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    request.trace.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(fresh(request.trace)))
    return _added_up(profiler, request.steps, device)


def stepping(request: Profile) -> Callable[[], None]:
    """A function that runs the cell's next step, batch after batch, its phases marked for the profiler."""
    settings = request.cell.settings
    device = torch.device(settings.device)
    examples = examples_of(settings, storage.root(request.data_dir), device)
    try:
        trainer = Trainer(request.cell, examples, device)
    except SuiteError as error:
        raise request.cell.placed(error) from error
    trainer.step.begin_epoch(trainer.noise)
    for phase in PHASES:
        setattr(trainer.step, phase, _marked(phase, getattr(trainer.step, phase)))
    setattr(trainer.step, "look_back", _marked("precondition", trainer.step.look_back))  # noqa: B010 - as those above
    order = torch.randperm(trainer.steps * settings.batch_size, generator=trainer.order)
    wanted = min(trainer.steps, 2 * request.steps)
    batches = cycle(list(islice(examples.training(order, settings.batch_size, seed=0), wanted)))
    return lambda: trainer.step(*next(batches))


def _marked(phase: str, work: Callable[..., Any]) -> Callable[..., Any]:
    def marked(*arguments: Any) -> Any:
        with record_function(PREFIX + phase):
            return work(*arguments)

    return marked


def _added_up(profiler: torch_profile, steps: int, device: torch.device) -> Profiled:
    events = [event for event in profiler.events() or () if event.device_type == DeviceType.CPU]
    # A kernel is charged to the phase that launched it, by the time of that: the backward pass launches in another
    # thread than the one that the phases are marked in.
    kernels = len(on_device(profiler))
    launches = [(event.time_range.start, kernel.duration) for event in events for kernel in event.kernels]
    told = kernels > 0  # where it may not use CUPTI, the profiler goes on without a word

    def spent(host: float, kernels: float) -> Time:
        return Time(host / steps / 1e3, kernels / steps / 1e3 if told else None)

    def marked(name: str) -> Time:
        spans = [(event.time_range.start, event.time_range.end) for event in events if event.name == name]
        inside = sum(time for at, time in launches if any(start <= at <= end for start, end in spans))
        return spent(sum(end - start for start, end in spans), inside)

    own = {
        event.key.removeprefix("aten::"): (
            spent(event.self_cpu_time_total, event.self_device_time_total),
            event.count / steps,
        )
        for event in profiler.key_averages()
        if event.device_type == DeviceType.CPU and event.key.startswith("aten::")
    }
    dearest = sorted(own, key=lambda name: own[name][0].host + (own[name][0].device or 0.0), reverse=True)
    return Profiled(
        step=marked(STEP),
        phases={phase: marked(PREFIX + phase) for phase in PHASES},
        operators={name: own[name] for name in dearest},
        kernels=kernels / steps if told else None,
        untold=NO_CUPTI if device.type == "cuda" and not told else None,
        joined=not any(event.name.startswith("Optimizer.step#") for event in events),
    )
