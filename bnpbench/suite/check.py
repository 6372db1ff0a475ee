"""What is wrong with a suite, or doubtful, that shows before any data or device is touched."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from math import prod
from typing import Any

from bnpbench.datasets.base import shape_of
from bnpbench.metrics.base import MetricPlugin
from bnpbench.networks.base import INPUT, NetworkPlugin
from bnpbench.records.rows import is_own
from bnpbench.registry import built_in, ships
from bnpbench.sites import Misfit, Site, no_form_of_its_own, no_site, nothing_to_precondition
from bnpbench.suite.cells import Cell
from bnpbench.suite.document import Measure, Probe
from bnpbench.suite.expand import Grid
from bnpbench.suite.explain import closest, listed, shown
from bnpbench.suite.matching import Mask
from bnpbench.suite.settings import Settings, having, training_of
from bnpbench.suite.vocabulary import label, without
from bnpbench.text import number_of


def misfit(settings: Settings) -> Misfit | None:
    """Why the method has no meaning on the network at the batch size, or the optimizer none in the engine.

    None where both have one; also where only building tells, as it does for a network that does not say where it asks
    for a normalization.
    """
    network, method = settings.network, settings.method
    if (reason := settings.optimizer.untraced(settings.engine)) is not None:
        return Misfit(reason)
    if method.native and not network.of_others:
        option = "sites" if "sites" in type(method).model_fields else None
        return Misfit(no_form_of_its_own(network.kind, method.kind), option)
    sites = _sites(settings)
    if sites is None:
        return None
    if not sites and method.normalizes():
        return Misfit(no_site(network.kind, method.kind, method.preconditions()))
    if not sites and method.preconditions() and not getattr(method, "first_layer", True):
        return Misfit(nothing_to_precondition(network.kind, method.kind))
    found = [fault for site in sites if (fault := method.undivided(site.layer, site.features))]
    return found[0] if found else next((fault for site in sites if (fault := _one_at_a_time(settings, site))), None)


def unchecked(settings: Settings) -> str | None:
    """What of a setting only building shows, or the data; None where its options tell everything."""
    told = [
        f"{name} {options.kind!r} (a plugin)"
        for name, options in (
            ("method", settings.method),
            ("network", settings.network),
            ("data set", settings.dataset),
        )
        if not ships(type(options))
    ]
    if settings.network.of_others:
        told.append(f"what network {settings.network.kind!r} normalizes")
    if patterns := getattr(settings.method, "layers", ()):
        told.append(f"whether layers are called {listed(patterns)}")
    if settings.dataset.streamed:
        told.append("classes and sizes of the image folder")
    return ", ".join(told) or None


def _sites(settings: Settings) -> list[Site] | None:
    """Where the method puts a normalization, in the order in which they are built; None where only building tells."""
    network, method = settings.network, settings.method
    shape = network.reads(shape_of(settings.dataset).input)
    found = network.sites(shape, method.stands)
    if found is None:
        return None
    features, *positions = shape
    return [
        *found,
        *([Site(INPUT, features, prod(positions))] if method.normalizes_input else []),
    ]  # as it is built last


def _one_at_a_time(settings: Settings, site: Site) -> Misfit | None:
    method, examples = settings.method, settings.pooled_examples
    if method.smallest_set(site, examples) != 1:
        return None
    by_batch = method.smallest_set(site, examples + 1) != 1
    where = f"what follows layer {site.layer!r}{settings.divided if by_batch else ''}"
    return Misfit(method.lone_value(where, site.features, examples))


def check_settings(grid: Grid, asked: Mask) -> None:
    """Raises SuiteError for settings that contradict each other in any cell, or the data's size in one asked for."""
    seen = set()
    for row, (settings, wanted) in enumerate(zip(grid.settings, asked.tolist(), strict=True)):
        together = settings.only("checked"), wanted
        if together not in seen:
            seen.add(together)
            fault = (_fault_of_sizes(settings) if wanted else None) or _fault(settings)
            if fault:
                raise grid.error(fault[1], row, fault[0])


def _fault_of_sizes(settings: Settings) -> tuple[tuple[str, ...], str] | None:
    """The setting that asks for more examples than there are, and by how many."""
    shape, name = shape_of(settings.dataset), settings.dataset.kind
    train, validation = settings.split_sizes()
    left = shape.train - validation
    if settings.validation and not (left and validation):
        return ("validation",), f"{settings.validation:g} of {shape.train:,} examples leaves one side empty"
    if settings.train_limit is not None and settings.train_limit > left:
        rest = f" after validation took {validation:,}" if validation else ""
        return ("train_limit",), f"{settings.train_limit:,} examples; {name} has {left:,} to train on{rest}"
    if settings.batch_size > train:
        used = f"{train:,}" if train == shape.train else f"{train:,} of {shape.train:,}"
        return ("batch_size",), f"{settings.batch_size:,} is more than the training data: {used} examples of {name}"
    return None


def _fault(settings: Settings) -> tuple[tuple[str, ...], str] | None:
    """The setting at fault and what is wrong with it."""
    shape, network = shape_of(settings.dataset), settings.network
    name = settings.dataset.kind
    size = " x ".join(map(str, shape.input))
    if (unreadable := network.unreadable(shape.input)) is not None:
        return ("network",), f"{network.kind} {unreadable}; {name} is {size}"
    if network.tokens != shape.tokens:
        reads = ("numbers", "tokens")[network.tokens]
        given = "characters of a text" if shape.tokens else f"numbers ({size})"
        fitting = [kind for kind, cls in built_in().kinds(NetworkPlugin).items() if cls.tokens == shape.tokens]
        return ("network",), f"{network.kind} reads {reads}, and examples of {name} are {given}; take {listed(fitting)}"
    if (fault := _fault_of_metrics(settings.metrics)) is not None:
        return ("metrics",), fault
    if settings.label_smoothing and not settings.loss.smooths:
        return ("label_smoothing",), f"the loss {settings.loss.kind} takes no share of a label away: leave it out"
    if len(shape.input) != 3 and settings.augment != "none":
        return ("augment",), f"{settings.augment} needs images (channels x height x width); {name} is {size}"
    if network.images is False and settings.augment != "none":
        return ("augment",), f"{settings.augment} changes images; {network.kind} reads rows of features"
    if network.images is False and settings.memory_format != "contiguous":
        return (
            "memory_format",
        ), f"{settings.memory_format} is an order of images; {network.kind} reads rows of features"
    return _fault_of_devices(settings)


def _fault_of_metrics(metrics: Sequence[MetricPlugin]) -> str | None:
    """What is wrong with the names of a cell's metrics."""
    columns = [metric.column for metric in metrics]
    if (odd := next((column for column in columns if not is_own(column)), None)) is not None:
        return f"{shown(odd)} is no name of a metric: letters, digits and + - _ behind the dot, 64 at most"
    twice = next((column for column in columns if columns.count(column) > 1), None)
    return None if twice is None else f"two are called {twice}; each needs a name of its own"


def _fault_of_devices(settings: Settings) -> tuple[tuple[str, ...], str] | None:
    """What does not go together with the number of devices, or of micro-batches."""
    devices, parts = settings.devices, settings.accumulate
    if settings.batch_size % parts:
        return ("accumulate",), f"{parts} micro-batches cannot share a batch of {settings.batch_size} equally"
    if parts > 1 and devices > 1:
        return ("accumulate",), f"{parts} micro-batches run on one device, not on {devices}"
    if settings.batch_size < devices:
        return ("devices",), f"{devices} devices cannot share a batch of {settings.batch_size}"
    if devices > 1 and settings.engine not in ("auto", "eager"):
        return ("engine",), f"{settings.engine} runs on one device; several run eager steps only"
    refusal = settings.method.refuses(training_of(settings))
    return None if refusal is None else (("method", *filter(None, [refusal.option])), refusal.reason)


def check_fit(grid: Grid) -> None:
    """Raises SuiteError for a method's option that fits none of the networks it meets.

    Where it fits some of them, the others are cells that end as not applicable.
    """
    known: dict[Any, Misfit | None] = {}
    unfit: dict[Any, tuple[int, Misfit]] = {}
    fitting = set()
    for row, settings in enumerate(grid.settings):
        decides = settings.only("fits")
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


def check_probe(grid: Grid, probe: Probe | None) -> None:
    """Raises SuiteError where the probe would look at a Hessian that the training knows nothing of."""
    for row, settings in enumerate(grid.settings if probe is not None else ()):
        if not settings.loss.entropy:
            message = f"the probe has the Hessian of the cross-entropy, not of {settings.loss.kind}: leave [probe] out"
            raise grid.error(message, row, ("loss",))


def check_devices(grid: Grid, measure: Measure, probe: Probe | None) -> None:
    """Raises SuiteError where several devices would share what only one process can do."""
    several = [row for row, settings in enumerate(grid.settings) if settings.devices > 1]
    if several and measure.interleave:
        message = "cells that take turns share one process, and several devices take one each: leave interleave out"
        raise grid.error(message, several[0], ("devices",))
    if several and probe is not None:
        message = "the probe looks at a whole batch, and each of several devices has a part: leave [probe] out"
        raise grid.error(message, several[0], ("devices",))


def check_labels(grid: Grid, chosen: frozenset[str]) -> None:
    """Raises SuiteError where a label stands for two methods, or a cell's settings have two labels.

    Args:
        grid: all cells.
        chosen: options of methods whose best values are looked for: trials of one method differ in them.
    """
    by_label: dict[str, tuple[Any, Any]] = {}
    by_method: dict[Any, str] = {}
    renamed = False  # whether some method goes by two labels, as it may with different optimizers
    for row, method in _first_rows(grid):
        name, bare = label(method), method.model_copy(update={"label": None})
        known, tried = by_label.setdefault(name, (bare, without(method, chosen)))
        if known != bare and tried != without(method, chosen):
            message = f"label {name!r} stands for two methods: {label(known)} and {label(bare)}; give each its own"
            raise grid.error(message, row, ("method", "label"))
        if name in grid.words.methods and name != method.kind:
            raise grid.error(f"label {name!r} is the name of another method", row, ("method", "label"))
        renamed |= by_method.setdefault(bare, name) != name
    if renamed:
        _check_renamed(grid)


def check_baseline(grid: Grid, baseline: str | None) -> None:
    """Raises SuiteError where no method has this label or kind."""
    methods = [method for _, method in _first_rows(grid)]
    names = dict.fromkeys(name for method in methods for name in (label(method), method.kind))
    if baseline is not None and baseline not in names:
        message = f"no method of the suite is called {baseline!r}; there are: {listed(names)}"
        raise grid.source.error(message, ("report", "baseline"), closest(baseline, names))


def check_metric(grid: Grid, metric: str, own: Collection[str], *, chosen: bool) -> None:
    """Raises SuiteError where no cell has the number that the suite says a method buys.

    Args:
        grid: all cells.
        metric: of ``[report]``.
        own: the metrics that cells have beside those of bnpbench.
        chosen: whether finals follow from the cells, which hold nothing out.
    """
    if is_own(metric) and metric not in own:
        there = f"; there are: {listed(sorted(own))}" if own else ""
        message = f"no cell has this metric; name it in metrics of [train]{there}"
        raise grid.source.error(message, ("report", "metric"), closest(metric, own))
    reason = None
    if metric == "test_bits_per_token" and not any(shape_of(settings.dataset).tokens for settings in grid.settings):
        reason = "the data are no text"
    if metric == "validation_accuracy" and (chosen or not any(settings.validation for settings in grid.settings)):
        reason = "no example is held out"
    if reason is not None:
        raise grid.source.error(f"no cell has {metric}: {reason}", ("report", "metric"))


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


def groups(grid: Grid, interleave: tuple[str, ...], chosen: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """For each row where it stands on the axes that are not interleaved: rows that are equal share a block.

    Twice: as one of many trials, or where nothing is chosen; and as the final that has been chosen from them, which
    stands beside those of other methods whatever their best values are, where they may share a process.

    Args:
        grid: all cells.
        interleave: of ``[measure]``.
        chosen: the axes of ``[select]``.

    Raises:
        SuiteError: an interleaved axis is none of the sweep's, or a block's cells cannot share a process.
    """
    names = [axis.name for axis in grid.axes]
    for number, name in enumerate(interleave):
        if name not in names:
            message = f"{name!r} is no axis of [sweep]; its axes: {', '.join(names) or 'none'}"
            raise grid.source.error(message, ("measure", "interleave", number), closest(name, names))
    if not interleave:
        return [("", "")] * grid.size
    apart = [number for number, name in enumerate(names) if name not in interleave]
    unchosen = [number for number in apart if names[number] not in chosen]
    found, alike = (
        [" ".join(map(str, point)) or "all" for point in grid.coordinates[:, axes].tolist()]
        for axes in (apart, unchosen)
    )
    first: dict[str, int] = {}
    for row, group in enumerate(found):
        one, other = grid.settings[first.setdefault(group, row)], grid.settings[row]
        for name in having("shared"):
            if getattr(one, name) != getattr(other, name):
                values = f"{shown(getattr(one, name))} and {shown(getattr(other, name))}"
                message = f"interleaved cells take turns in one process and must agree; here {values}"
                raise grid.error(message, row, (name,))
    if not chosen:
        return list(zip(found, found, strict=True))
    shared = (settings.only("shared") for settings in grid.settings)
    return [(trial, f"{final} {values}") for trial, final, values in zip(found, alike, shared, strict=True)]


def warnings(cells: Sequence[Cell], measure: Measure) -> list[str]:
    """A sentence for each doubt about the cells of a suite, with the methods that it is about."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for doubt in _doubts(cell.settings):
            found.setdefault(doubt, []).append(cell.label)
    told = [f"{', '.join(dict.fromkeys(labels))}: {doubt}" for doubt, labels in found.items()]
    if cells and measure.interval is not None and measure.max_epochs is None and measure.max_seconds is None:
        last = max(measure.last_epoch(cell.settings.epochs) or 0 for cell in cells)
        told.append(
            f"interval gives up after {number_of(last, 'epoch')}, as neither max_epochs nor max_seconds says when"
        )
    return told


def _doubts(settings: Settings) -> Iterable[str]:
    if settings.network.of_others and not settings.initialization.keeps:
        yield (
            f"initialization {settings.initialization.kind!r} redraws all weights of the network "
            f"{settings.network.kind!r}, its normalizations' too; 'keep' trains it from those that it is made with"
        )
    schedule, epochs = settings.schedule, settings.epochs
    if (warmup := schedule.warmup) is not None:
        steps = epochs * (settings.split_sizes()[0] // settings.batch_size)
        if warmup.epochs is not None and warmup.epochs >= epochs:
            lasts = number_of(warmup.epochs, "epoch")
            yield f"a warm-up of {lasts} outlasts the training of {epochs}: the full rate is never used"
        if warmup.iterations is not None and warmup.iterations >= steps:
            yield (
                f"a warm-up of {warmup.iterations:,} iterations outlasts the training of {steps:,} at batch size "
                f"{settings.batch_size}: the full rate is never used"
            )
    if (unused := schedule.unused(epochs)) is not None:
        yield unused
    cores = os.cpu_count() or 1
    if isinstance(settings.threads, int) and settings.threads > cores:
        there = number_of(cores, "core")
        yield f"{settings.threads:,} threads are more than the {there} here: steps wait for each other"
