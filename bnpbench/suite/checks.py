"""Faults between settings that show before any data or device is touched."""

from __future__ import annotations

from typing import Any

from bnpbench.suite.cells import Cell
from bnpbench.suite.data import data_shape, split_sizes
from bnpbench.suite.document import Measure, Probe
from bnpbench.suite.expansion import Grid
from bnpbench.suite.explaining import closest, shown
from bnpbench.suite.fitting import misfit
from bnpbench.suite.options import SETTINGS, kinds, method_label
from bnpbench.suite.settings import Settings
from bnpbench.suite.sites import Misfit
from bnpbench.suite.vocabulary import BatchNorm, Cnn, FullyConnected, ResNet, ResNet18

SMALLEST_CNN_IMAGE = 18  # three valid 3 x 3 convolutions and two poolings by 2 leave one position of it
ONE_DEVICE = ("renorm", "4things")
"""Methods whose batch statistics are not reduced over devices."""
AGREE = ("device", "devices", "precision", "threads", "deterministic", "epochs")
"""What the cells of a block must have in common: one process, one set of flags, as many turns."""


def check_settings(grid: Grid) -> None:
    """Raises SuiteError for settings that contradict each other or the data, in any cell."""
    seen = set()
    for row, settings in enumerate(grid.settings):
        together = (
            settings.dataset,
            settings.network,
            settings.batch_size,
            settings.train_limit,
            settings.validation,
            settings.augment,
            settings.memory_format,
            settings.devices,
            settings.engine,
            settings.method,
        )
        if together not in seen:
            seen.add(together)
            fault = _fault(settings)
            if fault:
                raise grid.error(fault[1], row, fault[0])


def _fault(settings: Settings) -> tuple[tuple[str, ...], str] | None:
    """The setting at fault and what is wrong with it."""
    shape = data_shape(settings.dataset)
    name = settings.dataset.kind
    train, validation = split_sizes(settings)
    left = shape.train - validation
    if settings.validation and not (left and validation):
        return ("validation",), f"{settings.validation:g} of {shape.train:,} examples leaves one side empty"
    if settings.train_limit is not None and settings.train_limit > left:
        rest = f" after validation took {validation:,}" if validation else ""
        return ("train_limit",), f"{settings.train_limit:,} examples; {name} has {left:,} to train on{rest}"
    if settings.batch_size > train:
        used = f"{train:,}" if train == shape.train else f"{train:,} of {shape.train:,}"
        return ("batch_size",), f"{settings.batch_size:,} is more than the training data: {used} examples of {name}"
    is_image, size = len(shape.input) == 3, " x ".join(map(str, shape.input))
    if not is_image and isinstance(settings.network, Cnn | ResNet | ResNet18):
        return ("network",), f"{settings.network.kind} needs images (channels x height x width); {name} is {size}"
    if not is_image and settings.augment != "none":
        return ("augment",), f"{settings.augment} needs images (channels x height x width); {name} is {size}"
    if isinstance(settings.network, FullyConnected) and settings.augment != "none":
        return ("augment",), f"{settings.augment} changes images; fc reads rows of features"
    if isinstance(settings.network, FullyConnected) and settings.memory_format != "contiguous":
        return ("memory_format",), f"{settings.memory_format} is an order of images; fc reads rows of features"
    if isinstance(settings.network, Cnn) and min(shape.input[1:]) < SMALLEST_CNN_IMAGE:
        least = f"{SMALLEST_CNN_IMAGE} x {SMALLEST_CNN_IMAGE}"
        return ("network",), f"cnn needs images of at least {least}; {name} is {size}"
    return _fault_of_devices(settings)


def _fault_of_devices(settings: Settings) -> tuple[tuple[str, ...], str] | None:
    """What does not go together with the number of devices."""
    devices, method = settings.devices, settings.method
    if devices == 1:
        if isinstance(method, BatchNorm) and not method.sync:
            return ("method", "sync"), "one device has nothing to synchronize with: leave sync out, or raise devices"
        return None
    if settings.batch_size < devices:
        return ("devices",), f"{devices} devices cannot share a batch of {settings.batch_size}"
    if settings.engine not in ("auto", "eager"):
        return ("engine",), f"{settings.engine} runs on one device; several run eager steps only"
    if method.kind in ONE_DEVICE:
        return ("method",), f"{method.kind} takes its statistics from the whole batch, which no device sees whole"
    return None


def check_fit(grid: Grid) -> None:
    """Raises SuiteError for a method's option that fits none of the networks it meets.

    Where it fits some of them, the others are cells that end as not applicable.
    """
    known: dict[Any, Misfit | None] = {}
    unfit: dict[Any, tuple[int, Misfit]] = {}
    fitting = set()
    for row, settings in enumerate(grid.settings):
        decides = (settings.dataset, settings.network, settings.method, settings.batch_size, settings.devices)
        if decides not in known:
            known[decides] = misfit(settings)
        fault = known[decides]
        if fault is None or fault.option is None:
            fitting.add(settings.method)
        else:
            unfit.setdefault(settings.method, (row, fault))
    for method, (row, fault) in unfit.items():
        if method not in fitting:
            raise grid.error(fault.reason, row, ("method", fault.option or ""))


def check_devices(grid: Grid, measure: Measure, probe: Probe | None) -> None:
    """Raises SuiteError where several devices would share what only one process can do."""
    several = [row for row, settings in enumerate(grid.settings) if settings.devices > 1]
    if several and measure.interleave:
        message = "cells that take turns share one process, and several devices take one each: leave interleave out"
        raise grid.error(message, several[0], ("devices",))
    if several and probe is not None:
        message = "the probe looks at a whole batch, and each of several devices has a part: leave [probe] out"
        raise grid.error(message, several[0], ("devices",))


def check_labels(grid: Grid) -> None:
    """Raises SuiteError where a label stands for two methods, or a cell's settings have two labels."""
    by_label: dict[str, Any] = {}
    by_method: dict[Any, str] = {}
    renamed = False  # whether some method goes by two labels, as it may with different optimizers
    for row, method in _first_rows(grid):
        label, bare = method_label(method.model_dump(mode="json")), method.model_copy(update={"label": None})
        known = by_label.setdefault(label, bare)
        if known != bare:
            message = f"label {label!r} stands for two methods: {_told(known)} and {_told(bare)}; give each its own"
            raise grid.error(message, row, ("method", "label"))
        if label in kinds(SETTINGS["method"]) and label != method.kind:
            raise grid.error(f"label {label!r} is the name of another method", row, ("method", "label"))
        renamed |= by_method.setdefault(bare, label) != label
    if renamed:
        _check_renamed(grid)


def _check_renamed(grid: Grid) -> None:
    by_cell: dict[str, str] = {}
    for row, cell in enumerate(map(Cell, grid.settings)):
        known = by_cell.setdefault(cell.canonical, cell.label)
        if known != cell.label:
            message = f"labels {known!r} and {cell.label!r} stand for the same settings; one of them is enough"
            raise grid.error(message, row, ("method", "label"))


def _first_rows(grid: Grid) -> list[tuple[int, Any]]:
    """Each distinct method with the first row that has it."""
    found: dict[int, tuple[int, Any]] = {}
    for row, settings in enumerate(grid.settings):
        found.setdefault(id(settings.method), (row, settings.method))
    return list(found.values())


def groups(grid: Grid, interleave: tuple[str, ...]) -> list[str]:
    """For each row where it stands on the axes that are not interleaved: rows that are equal share a block.

    Raises:
        SuiteError: an interleaved axis is none of the sweep's, or a block's cells cannot share a process.
    """
    names = [axis.name for axis in grid.axes]
    for number, name in enumerate(interleave):
        if name not in names:
            message = f"{name!r} is no axis of [sweep]; its axes: {', '.join(names) or 'none'}"
            raise grid.source.error(message, ("measure", "interleave", number), closest(name, names))
    if not interleave:
        return [""] * grid.size
    shared = [number for number, name in enumerate(names) if name not in interleave]
    found = [" ".join(map(str, point)) or "all" for point in grid.coordinates[:, shared].tolist()]
    first: dict[str, int] = {}
    for row, group in enumerate(found):
        one, other = grid.settings[first.setdefault(group, row)], grid.settings[row]
        for name in AGREE:
            if getattr(one, name) != getattr(other, name):
                values = f"{shown(getattr(one, name))} and {shown(getattr(other, name))}"
                message = f"interleaved cells take turns in one process and must agree; here {values}"
                raise grid.error(message, row, (name,))
    return found


def _told(method: Any) -> str:
    return method_label(method.model_dump(mode="json"))
