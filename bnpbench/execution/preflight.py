"""Before anything runs, in a child: are the data there, what does a step of each cell cost, and what do two show."""

from __future__ import annotations

import ctypes
import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.nn.functional as F
from torch import Tensor

from bnpbench.datasets import storage
from bnpbench.datasets.base import shape_of
from bnpbench.errors import DataError, NotApplicable, SuiteError
from bnpbench.execution.child import configure, failure, message_of
from bnpbench.execution.messages import Phase, Preflight, Smoke, Tell, Tried
from bnpbench.layers.weighted import weighted
from bnpbench.measure import machine
from bnpbench.measure.step_costs import Columns, Costs
from bnpbench.methods.gradient import GradientPlugin
from bnpbench.methods.preconditioning import Preconditioning
from bnpbench.suite import Cell, Probe, Settings
from bnpbench.suite.explain import closest, listed
from bnpbench.text import number_of
from bnpbench.training import models
from bnpbench.training.accounting import costs, kept_bytes
from bnpbench.training.examples import WHOLE, Examples, Pairs, data_key, examples_of
from bnpbench.training.trainer import Trainer

STEPS = ("before the first step", "after the first step", "after the second step")
"""Where the loss is looked at: in the forward pass of either step, and in one more."""
BLOTCHES = 4  # a side, of a generated image
COPIES_OF_KEPT = 2  # what the forward pass keeps; gradients of it, and the working memory of convolutions
COPIES_OF_WEIGHTS = 3  # their gradients, and up to two moments of the optimizer


def preflight(request: Preflight, tell: Tell) -> dict[str, Costs]:
    """Check every distinct setting once.

    Args:
        request: the cells.
        tell: gets a ``Phase`` for what is fetched, and for each setting.

    Returns:
        The costs of each cell by its key.

    Raises:
        DataError: a data set is not there, or weights of a network.
        SuiteError: a pattern of a method's ``layers`` fits no layer, or a network has no such neuron as is probed.
    """
    root = storage.root(request.data_dir)
    with storage.told_to(lambda what, far: tell(Phase(what, far))):
        for dataset in dict.fromkeys(type(cell.settings.dataset) for cell in request.cells if request.fetch):
            dataset.fetch(root, offline=request.offline)
        for network in dict.fromkeys(cell.settings.network for cell in request.cells if request.fetch):
            network.fetch(offline=request.offline)
    costing = {cell.key: cell.settings.costing() for cell in request.cells}
    distinct: dict[Settings, Cell] = {}
    for cell in request.cells:
        distinct.setdefault(costing[cell.key], cell)
    found: dict[Settings, Costs] = {}
    layers = partial(_layers, root=root, known={})
    _check_patterns((*request.cells, *request.whole), layers)
    if request.probe is not None:
        _check_probe(request.cells, request.probe, layers)
    for place, (settings, cell) in enumerate(distinct.items(), start=1):
        tell(Phase("preflight", f"{place}/{len(distinct)}"))
        found[settings] = _costs(settings, root, cell)
    return {key: found[settings] for key, settings in costing.items()}


def _check_patterns(every: Iterable[Cell], layers: Callable[[Settings], dict[str, int]]) -> None:
    """Raises SuiteError for a pattern of a method's ``layers`` that fits none of the networks that it meets."""
    fitting: set[str] = set()
    unfit: dict[str, Cell] = {}
    there: dict[str, None] = {}
    for cell in every:
        settings = cell.settings
        patterns = settings.method.layers if isinstance(settings.method, Preconditioning | GradientPlugin) else ()
        if not patterns:
            continue
        names = layers(settings)
        there |= dict.fromkeys(names)
        for pattern in patterns:
            if not names or any(fnmatchcase(name, pattern.removeprefix("!")) for name in names):
                fitting.add(pattern)
            else:
                unfit.setdefault(pattern, cell)
    for pattern, cell in unfit.items():
        if pattern not in fitting:
            message = f"no layer has a name like {pattern!r}; there are: {listed(there)}"
            raise cell.placed(SuiteError(message, key="method.layers", closest=closest(pattern, there)))


def _check_probe(cells: Iterable[Cell], probe: Probe, layers: Callable[[Settings], dict[str, int]]) -> None:
    """Raises SuiteError for a cell whose network has no such neuron."""
    for cell in cells:
        there = layers(cell.settings)
        if there and probe.layer not in there:
            message = (
                f"network {cell.settings.network.kind} has no such layer: {probe.layer!r}; there are: {listed(there)}"
            )
            raise cell.placed(SuiteError(message, key="probe.layer", closest=closest(probe.layer, there)))
        if there and probe.neuron >= there[probe.layer]:
            message = f"layer {probe.layer!r} has neurons 0 to {there[probe.layer] - 1}, not {probe.neuron}"
            raise cell.placed(SuiteError(message, key="probe.neuron"))


def _layers(settings: Settings, root: Path, known: dict[Any, dict[str, int]]) -> dict[str, int]:
    """Names of what could be preconditioned or probed, with the numbers of neurons.

    Empty where the network cannot be built, which its costs tell.
    """
    place = (settings.dataset, settings.network, settings.method)
    if place not in known:
        known[place] = {}
        with suppress(Exception), torch.device("meta"):
            shape = settings.dataset.found(root)
            network = settings.network.reads(shape.input)
            model = models.build_model(settings, network, shape.classes, torch.Generator("cpu"))
            known[place] = {name: len(layer.weight) for name, layer in weighted(model)}
    return known[place]


def _costs(settings: Settings, root: Path, cell: Cell) -> Costs:
    """The costs of settings that the cell has, or why there are none: a fault of one cell stops no other."""
    try:
        shape = settings.dataset.found(root)
        return costs(settings, settings.network.reads(shape.input), shape.classes)
    except DataError:
        raise
    except NotApplicable as error:
        return Costs(Columns(), not_applicable=str(error))
    except Exception as error:  # the cell will meet it too, and end with its message and a log
        return Costs(Columns(), uncounted=message_of(error, cell))


def free_memory(device: torch.device) -> int:
    """Bytes of a device that nothing takes."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return int(psutil.virtual_memory().available)


def smoke(request: Smoke, tell: Tell, free: Callable[[torch.device], int] = free_memory) -> None:
    """Take two eager steps of the request's cells, one after another, and their metrics of two batches.

    Each cell is told as soon as it is done.

    Args:
        request: the cells.
        tell: gets a ``Tried`` of each.
        free: bytes of a device that nothing takes.
    """
    root = storage.root(request.data_dir)
    loaded: dict[Any, Examples] = {}
    for cell in request.cells:
        _give_back()
        begin = time.perf_counter()
        try:
            configure(cell.settings, gpu=0)
            tried = _tried(cell, _examples(cell.settings, root, loaded), free)
        except Exception as error:
            tried = _failed(cell, error)
        seconds, peak = time.perf_counter() - begin, machine.peak_memory_bytes()
        tell(replace(tried, seconds=seconds, peak_memory_bytes=peak))


def _tried(cell: Cell, examples: Examples, free: Callable[[torch.device], int]) -> Tried:
    trainer = Trainer(cell, examples, torch.device(cell.settings.device))
    asked = cell.settings
    reason = models.not_applicable(
        trainer.model, examples.input_shape, asked.pooled_examples, asked.divided, examples.classes
    )
    if reason is not None:
        return Tried(cell.key, "not applicable", reason)
    needed, there = _needed(trainer), free(trainer.device)
    if needed > there:
        sizes = f"{needed / 2**30:.1f} GiB of memory, and {there / 2**30:.1f} GiB are free"
        return Tried(cell.key, "not tried", f"a step would take about {sizes}")
    losses = tuple(_losses(trainer))
    for place, loss in zip(STEPS, losses, strict=True):
        if not math.isfinite(loss):
            return Tried(cell.key, "not finite", f"the loss is {loss} {place}", losses)
    if asked.metrics:
        batches = _two_batches(trainer)
        with trainer.autocast:
            trainer.evaluate(batches)  # what fails in here is of no metric
            for metric in asked.metrics:
                try:
                    trainer.evaluate(batches, [metric])
                except Exception as error:
                    return _failed(cell, error, f"{metric.column}: ")
    return Tried(cell.key, "finite", losses=losses)


def _failed(cell: Cell, error: Exception, what: str = "") -> Tried:
    status, message = failure(error, cell)
    told = {"not-applicable": "not applicable", "oom": "not tried"}.get(status, status)
    return Tried(cell.key, told, what + message)


def _two_batches(trainer: Trainer) -> tuple[tuple[Tensor, Tensor], ...]:
    """Of different size, as those of a test set may be."""
    count = trainer.settings.batch_size
    index, *streamed = next(iter(trainer.examples.training(torch.arange(count), count, seed=0)))
    images, labels = trainer.step.data(index, *(streamed or (None, None)))
    return (images, labels), (torch.cat((images, images[:1])), torch.cat((labels, labels[:1])))


def _losses(trainer: Trainer) -> Iterator[float]:
    """The losses of a run's first two steps, and of the third before its update."""
    steps, batch_size = trainer.steps, trainer.settings.batch_size
    if not steps:
        there = number_of(len(trainer.examples.labels), "training example")
        raise DataError(f"{there} cannot fill a batch of {batch_size}; take a smaller batch_size")
    trainer.step.begin_epoch(trainer.noise)
    order = torch.randperm(len(trainer.examples.labels), generator=trainer.order)[: steps * batch_size]
    order = order.view(steps, batch_size)[[place % steps for place in range(3)]].flatten()
    first, second, third = trainer.examples.training(order, batch_size, seed=0)
    for place, batch in enumerate((first, second)):
        trainer.lr.fill_(trainer.rate(1 + place // steps, place % steps))
        trainer.step.loss_sum.zero_()
        trainer.step(*batch)
        yield trainer.step.loss_sum.item()
    index, *streamed = third
    with torch.no_grad():
        yield trainer.step.forward(*trainer.step.data(index, *(streamed or (None, None))))[1].item()


def _give_back() -> None:
    """Free the last cell's network, before ``configure`` takes it out of the collector's sight, and its memory too.

    The system counts what the allocator keeps for later (``children.MALLOC``) as taken.
    """
    gc.collect()
    with suppress(AttributeError, OSError):  # glibc's
        ctypes.CDLL(None).malloc_trim(0)


def _needed(trainer: Trainer) -> int:
    """About the bytes that a step takes beside the network and the data."""
    weights = sum(parameter.nbytes for parameter in trainer.model.parameters())
    kept = kept_bytes(trainer.settings, trainer.examples.input_shape, trainer.examples.classes)
    return COPIES_OF_KEPT * kept + COPIES_OF_WEIGHTS * weights


def _examples(settings: Settings, root: Path, loaded: dict[Any, Examples]) -> Examples:
    """The cell's data, or generated examples where they are not there; loaded once for the cells that follow."""
    key = (data_key(settings), settings.device)
    if key not in loaded:
        loaded.clear()  # those of an earlier cell, which may be large
        device = torch.device(settings.device)
        there = settings.dataset.unfit(root) is None
        loaded[key] = examples_of(settings, root, device) if there else Generated(settings, device)
    return loaded[key]


class Generated:
    """As many examples as a stored data set has, of its shape and classes; images are made batch by batch.

    They are smooth blotches with values in [0, 1], because what decides whether a first step is too long is the mean of
    images and how alike their pixels are, and white noise has little of either.
    """

    def __init__(self, settings: Settings, device: torch.device) -> None:
        shape = shape_of(settings.dataset)
        self._shape = shape.input
        self.input_shape = settings.network.reads(shape.input)
        self.classes = shape.classes
        self.labels = (torch.arange(settings.split_sizes()[0]) % shape.classes).to(device)
        self.test_examples = 0

    def training(self, order: Tensor, batch_size: int, seed: int, part: slice = WHOLE) -> Iterable[tuple[Tensor, ...]]:
        generator = torch.Generator().manual_seed(seed)
        for index in order.view(-1, batch_size)[:, part].unbind():
            blotches = torch.rand(len(index), self._shape[0], BLOTCHES, BLOTCHES, generator=generator)
            images = F.interpolate(blotches, self._shape[1:], mode="bilinear").reshape(-1, *self.input_shape)
            index = index.to(self.labels.device)
            yield index, images.to(self.labels.device), self.labels[index]

    def test(self) -> Pairs:
        return ()

    def validation(self) -> Pairs | None:
        return None
