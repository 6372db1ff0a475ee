"""Suite files: found, read, checked, turned into a :class:`~bnpbench.suite.suite.Suite`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from bnpbench.cache import expanded
from bnpbench.errors import Origin, SuiteError
from bnpbench.methods.bnp_native import BnpNative
from bnpbench.methods.native import Native
from bnpbench.networks.imported import Imported
from bnpbench.networks.made import MadeNetwork
from bnpbench.suite.check import (
    check_baseline,
    check_devices,
    check_fit,
    check_labels,
    check_metric,
    check_probe,
    check_settings,
    groups,
)
from bnpbench.suite.claims import check_claims
from bnpbench.suite.document import MAX_NAME, Document, Override, Probe, Select
from bnpbench.suite.expand import Grid
from bnpbench.suite.explain import Fault, closest, explain, listed
from bnpbench.suite.matching import Mask, only_pattern, setting_of
from bnpbench.suite.plugins import PluginFile, imported, load_plugins, module_file, names_in, plugins_answer
from bnpbench.suite.settings import having
from bnpbench.suite.source import KeyPath, Source, read
from bnpbench.suite.suite import Row, Suite
from bnpbench.suite.vocabulary import Vocabulary, named_without
from bnpbench.text import number_of, short_hash

MAX_PLUGIN_BYTES = 1024 * 1024
LATER = frozenset((*having("auto"), "epochs", "schedule", "validation"))
"""Settings that may be others in a cell than in the suite."""


def load_suite(
    source: str | Path,
    *,
    allow_plugins: bool = False,
    changes: Sequence[str] = (),
    network: str | None = None,
    only: Sequence[str] = (),
) -> Suite:
    """Reads a suite and checks all of it that needs neither data nor a device.

    Args:
        source: a path; or, as a text without slash and ``.toml``, the name of a suite that ships with bnpbench.
        allow_plugins: whether the suite may name Python files to be run.
        changes: ``KEY=VALUE`` each, such as ``optimizer.lr=0.05``: a setting of every cell, whatever the file says.
        network: ``package.module:factory``, a function that makes a network to take the place of the suite's: its
            methods are then ``native`` and ``bnp+native``. Its module is installed, beside the suite or in the working
            folder, and is run.
        only: what will be asked of it, as of :meth:`~bnpbench.suite.suite.Suite.cells`: other cells may need more
            examples than there are.

    Returns:
        The suite, whose cells are made by :meth:`~bnpbench.suite.suite.Suite.cells`.

    Raises:
        SuiteError: with file, line, key path and the closest valid key where there is one.
    """
    with plugins_answer():
        return _load(source, allow_plugins, changes, network, only)


def _load(
    source: str | Path, allow_plugins: bool, changes: Sequence[str], network: str | None, only: Sequence[str]
) -> Suite:
    file = read(_path(source))
    document = _document(file)
    given = None if network is None else _given(network, file)
    elsewhere: dict[tuple[str | int, ...], tuple[str, KeyPath]] = {
        ("override", number, "set"): (f"--set {text}", setting_of(text)[0])
        for number, text in enumerate(changes, len(document.override))
    }
    if network is not None:
        document = _of_network(document, network)
        elsewhere |= dict.fromkeys((("train", "network"), ("sweep", "method")), (f"--network {network}", ("target",)))
    file = replace(file, given=elsewhere)
    return replace(_loaded(file, _changed(document, changes), allow_plugins, given, only), changes=tuple(changes))


def _loaded(
    file: Source, document: Document, allow_plugins: bool, given: PluginFile | None, only: Sequence[str]
) -> Suite:
    plugins = _plugins(file, document, allow_plugins)
    reads = _sums_of_reads(file, document)
    grid = Grid(file, document, Vocabulary(load_plugins(plugins)))
    plugins = (*plugins, *_modules(grid, allow_plugins, given))
    words = Vocabulary(load_plugins(plugins))
    grid.plugins = tuple(sorted(reads.union(*(plugin.sums for plugin in plugins))))
    tried = document.select.of_methods if document.select else frozenset()
    check_settings(grid, _asked(grid, only, {*LATER, "method"} if tried else LATER))
    check_fit(grid)
    check_devices(grid, document.measure, document.probe)
    check_probe(grid, document.probe)
    check_labels(grid, tried)
    check_baseline(grid, document.report.baseline)
    own = {metric.column for _, metrics in grid.values("metrics") for metric in metrics}
    check_metric(grid, document.report.metric, own, chosen=document.select is not None)
    suite = Suite(
        name=document.name,
        source=document.source,
        description=document.description,
        path=file.path,
        measure=document.measure,
        metric=document.report.metric,
        targets=document.report.targets,
        baseline=document.report.baseline,
        references=document.reference,
        claims=document.claim,
        select=document.select,
        probe=document.probe,
        plugins=plugins,
        reads=document.reads,
        words=words,
        _rows=_rows(grid, document),
    )
    if document.claim or document.reference:
        table = grid.cells(np.array([row.chosen_rank == 0 for row in suite._rows]), tried)
        check_claims(file, document, table, own)
    return suite


def check_name(name: str) -> None:
    """Raises SuiteError for what is no suite's name."""
    try:
        Document.model_validate({"name": name})
    except ValidationError as error:
        fault = explain(error, Document, {"name": name}, Vocabulary()) or Fault((), str(error))
        raise SuiteError(fault.message, key="name", closest=fault.closest) from None


def shipped_suites() -> dict[str, Path]:
    """Name → path of the suites that ship with bnpbench: inside the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    folder = next((f for f in (package / "suites", package.parent / "suites") if f.is_dir()), None)
    return {path.stem: path for path in sorted(folder.glob("*.toml"))} if folder else {}


def _path(source: str | Path) -> Path:
    if isinstance(source, Path) or source.endswith(".toml") or "/" in source or os.sep in source:
        return expanded(source)
    shipped = shipped_suites()
    if source not in shipped:
        message = f"no suite {source!r} ships with bnpbench; there are: {listed(shipped)}; for a file give its path"
        raise SuiteError(message, closest=closest(source, shipped))
    return shipped[source]


def _document(source: Source) -> Document:
    data = {"name": source.path.stem, **source.document}
    try:
        return Document.model_validate_json(json.dumps(data))
    except ValidationError as error:
        fault = explain(error, Document, data, Vocabulary()) or Fault((), str(error))
        raise source.error(fault.message, fault.path, fault.closest) from None


def _of_network(document: Document, target: str) -> Document:
    """The suite with another network, as it is made and under BNP; what it says of its own networks is left out."""
    own = ("network", "method", "initialization")
    name = f"{document.name}-{target.replace(':', '-').replace('.', '-')}"
    train = {name: value for name, value in document.train.items() if name not in own}
    sweep = {name: value for name, value in document.sweep.items() if name not in own}
    return document.model_copy(
        update={
            "name": name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 13]}-{short_hash(name)}",
            "train": {**train, "network": {"kind": Imported.word(), "target": target}},
            "sweep": {"method": [Native.word(), BnpNative.word()], **sweep},
            "override": tuple(  # that each stays the one of its number in the file
                Override.model_construct(when={}, set={}) if {*own} & {*one.when, *one.set} else one
                for one in document.override
            ),
            "measure": document.measure.model_copy(
                update={"interleave": tuple(name for name in document.measure.interleave if name in {"method", *sweep})}
            ),
            "report": document.report.model_copy(update={"baseline": Native.word()}),
            "claim": (),
            "reference": (),
            "probe": None,
        }
    )


def _given(target: str, source: Source) -> PluginFile:
    """The module of a network that was named on the command line."""
    try:
        Imported.made(target=target)
        found = module_file(target.partition(":")[0], (source.path.parent.resolve(), Path.cwd()))
    except ValidationError:
        raise SuiteError(f"--network {target}: give package.module:factory") from None
    except OSError as error:
        raise SuiteError(f"--network {target}: cannot be read: {error.strerror}") from None
    if found is None:
        raise SuiteError(f"--network {target}: no such module is installed, beside the suite or in this folder")
    return found


def _modules(grid: Grid, allowed: bool, given: PluginFile | None) -> tuple[PluginFile, ...]:
    """The modules that the networks of cells are imported from, however the suite came to them; none is run here.

    Args:
        grid: all cells.
        allowed: whether the suite may name code to run.
        given: the module of a network that was named on the command line, which is allowed.
    """
    files = {} if given is None else {str(given.module): given}
    for row, network in grid.values("network"):
        for path, one in _imported(network, ("network",)):
            place = (*path, "target")
            if not allowed and one.module not in files:
                raise grid.error("names Python code to run; pass --allow-plugins if you trust it", row, place)
            try:
                found = files.get(one.module) or module_file(one.module, (grid.source.path.parent.resolve(),))
            except OSError as error:
                raise grid.error(f"cannot be read: {error.strerror}", row, place) from None
            if found is None:
                raise grid.error(f"no module {one.module!r} is installed or beside the suite", row, place)
            files[one.module] = found
            wanted, known = one.target.partition(":")[2].partition(".")[0], names_in(found)
            if known is not None and wanted not in known:
                raise grid.error(f"{found.path} defines no {wanted!r}", row, place, closest(wanted, known))
    return tuple(files.values())


def _imported(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Imported]]:
    """Every network that is imported, a plugin's network that holds others looked into, and where it stands."""
    if isinstance(value, Imported):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _imported(getattr(value, name), (*path, name))
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _imported(one, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _imported(one, (*path, str(number)))


def _changed(document: Document, changes: Sequence[str]) -> Document:
    """With an override of all cells for each change, after those of the file."""
    overrides = []
    for text in changes:
        path, value = setting_of(text)
        if (axis := _axis_in(document.sweep, path)) is not None:
            raise SuiteError(f"--set {text}: {axis} is an axis of the suite; --only {axis}=VALUE picks from it")
        for name in reversed(path):
            value = {name: value}
        overrides.append(Override(when={}, set=value))
    return document.model_copy(update={"override": (*document.override, *overrides)})


def _axis_in(sweep: Mapping[str, Any], path: Sequence[str]) -> str | None:
    """The axis that gives a setting its values, or a part of it."""
    inner: Any = sweep
    for length, name in enumerate(path, 1):
        if not isinstance(inner, dict) or name not in inner:
            return None
        inner = inner[name]
        if not isinstance(inner, dict):
            return ".".join(path[:length])
    return ".".join(path)


def _plugins(source: Source, document: Document, allowed: bool) -> tuple[PluginFile, ...]:
    """The plugins that the suite names, each with its SHA-256 and what it imports from the suite's folder."""
    files = []
    for number, name in enumerate(document.plugins):
        place = ("plugins", number)
        path = _inside(source, name)
        if path is None or path.suffix != ".py":
            raise source.error("a plugin is a Python file inside the suite's folder, given by its relative path", place)
        if not allowed:
            raise source.error("names Python code to run; pass --allow-plugins if you trust it", place)
        try:
            if not path.is_file() or path.stat().st_size > MAX_PLUGIN_BYTES:
                raise source.error(f"no such file of at most {MAX_PLUGIN_BYTES // 1024:,} KiB: {name!r}", place)
            content = path.read_bytes()
            modules = imported(content, source.path.parent.resolve())
        except OSError as error:
            raise source.error(f"cannot be read: {error.strerror}", place) from None
        files.append(PluginFile(path, hashlib.sha256(content).hexdigest(), modules))
    return tuple(files)


def _sums_of_reads(source: Source, document: Document) -> set[str]:
    """The SHA-256 of each file that the plugins read."""
    if document.reads and not document.plugins:
        raise source.error("names what plugins read, and the suite has no plugins", ("reads",))
    sums = set()
    for number, name in enumerate(document.reads):
        path = _inside(source, name)
        if path is None or not path.is_file():
            raise source.error(f"no such file inside the suite's folder: {name!r}", ("reads", number))
        try:
            with path.open("rb") as stream:
                sums.add(hashlib.file_digest(stream, "sha256").hexdigest())
        except OSError as error:
            raise source.error(f"cannot be read: {error.strerror}", ("reads", number)) from None
    return sums


def _asked(grid: Grid, only: Sequence[str], later: Collection[str]) -> Mask:
    """The rows that cells asked for are made of, and more where a setting that may still change decides."""
    mask = grid.table.matching({})
    for text in only:
        pattern = only_pattern(text, grid.words)
        if not any(name in later for name in pattern):
            mask &= grid.table.matching(pattern)
    return mask


def _inside(source: Source, name: str) -> Path | None:
    """The file of a relative path in the suite's folder; None for a path that leads out of it."""
    folder = source.path.parent.resolve()
    path = (folder / name).resolve()
    return None if Path(name).is_absolute() or not path.is_relative_to(folder) else path


def _rows(grid: Grid, document: Document) -> tuple[Row, ...]:
    names = [axis.name for axis in grid.axes]
    select = document.select
    found = groups(grid, document.measure.interleave, select.axes if select else ())
    chosen = _selected(grid, select, names) if select else []
    sizes = [len(grid.axes[place].values) for place in chosen]
    seed = names.index("seed") if "seed" in names else None
    own = select.of_methods if select else frozenset()
    return tuple(
        Row(
            settings.model_copy(update={"method": named_without(settings.method, own)}) if own else settings,
            *group,
            0 if seed is None else point[seed],
            int(np.ravel_multi_index([point[place] for place in chosen], sizes)) if chosen else 0,
            tuple(place for axis, place in enumerate(point) if axis != seed and axis not in chosen),
            origins,
        )
        for settings, group, point, origins in zip(
            grid.settings, found, grid.coordinates.tolist(), _origins(grid, document.probe), strict=True
        )
    )


def _origins(grid: Grid, probe: Probe | None) -> Iterator[dict[str, Origin]]:
    """For each row where the settings stand that only building can judge: a network of others, patterns of layers, and
    what is probed."""
    known: dict[Any, Origin] = {}
    probed = (
        {} if probe is None else {f"probe.{name}": grid.source.origin(("probe", name)) for name in Probe.model_fields}
    )
    for row, settings in enumerate(grid.settings):
        network, method = settings.network, settings.method
        late: dict[str, Any] = {network.key(): network} if isinstance(network, MadeNetwork) else {}
        late |= {"method.layers": method} if getattr(method, "layers", ()) else {}
        for key, value in late.items():
            if value not in known:
                known[value] = grid.origin(row, tuple(key.split(".")))
        yield {key: known[value] for key, value in late.items()} | probed


def _selected(grid: Grid, select: Select, names: list[str]) -> list[int]:
    """The numbers of the axes that ``[select]`` chooses from."""
    for number, axis in enumerate(select.axes):
        place: KeyPath = ("select", "over") if isinstance(select.over, str) else ("select", "over", number)
        if axis not in names:
            message = f"{axis!r} is no axis of [sweep]; its axes: {', '.join(names) or 'none'}"
            raise grid.source.error(message, place, closest(axis, names))
        if axis == "seed":
            raise grid.source.error("a seed is not chosen by its result", place)
        if axis in select.axes[:number]:
            raise grid.source.error(f"{axis!r} is given twice", place)
    seeds = next((len(axis.values) for axis in grid.axes if axis.name == "seed"), 1)
    if select.seeds > seeds:
        message = f"{number_of(select.seeds, 'seed')} to try each value on; the sweep has {seeds}"
        raise grid.source.error(message, ("select", "seeds"))
    for row, settings in enumerate(grid.settings):
        if not settings.validation:
            message = f"choosing by {select.by} needs a share of the training data, such as 0.1"
            raise grid.error(message, row, ("validation",))
    return [names.index(axis) for axis in select.axes]
