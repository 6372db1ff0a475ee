"""Runs a suite: machine, cells, preflight, blocks, results."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bnpbench.errors import DeviceError
from bnpbench.execution.executor import Executor, Known, Local, SomethingToDo
from bnpbench.execution.messages import Phase, Preflight
from bnpbench.execution.options import Options, Selection, check, check_cuda_only, demand_devices
from bnpbench.execution.progress import Progress
from bnpbench.execution.provenance import provenance
from bnpbench.execution.sweep import Stores, Sweep
from bnpbench.measure.step_costs import Costs
from bnpbench.results import FINISHED, Results, read_results
from bnpbench.suite import Block, Cell, Suite
from bnpbench.text import number_of, plural


def run_suite(suite: Suite, out: str | Path = "results", progress: Progress | None = None, **options: Any) -> Results:
    """Run a suite and read its results.

    Args:
        suite: from ``load_suite``.
        out: folder of the results; what is finished there is not measured again.
        progress: is told what happens; silent by default.
        options: of :class:`bnpbench.execution.options.Options`, such as ``device="cpu"``, ``jobs=2`` or
            ``timeout=60.0`` (seconds a cell).

    Returns:
        All results in ``out``, also those of other suites and of earlier runs.

    Raises:
        BnpbenchError: before anything runs, when the suite cannot be run here.
        Stopped: Ctrl-C or SIGTERM came while ``interruption.listen`` was on; what was measured is kept.
    """
    asked = Options(out=Path(out), **options)
    execute(check(suite, asked), asked, progress or Progress())
    return read_results(Path(out))


class Ran(NamedTuple):
    """What came of a run: how many cells failed, and the ids of the environments that it ran in."""

    failed: int
    environments: frozenset[str]


def execute(selection: Selection, options: Options, progress: Progress, executor: Executor | None = None) -> Ran:
    """Run the blocks of a suite that are not finished yet.

    Args:
        selection: what ``check`` gave for the options.
        options: of the run.
        progress: is told what happens.
        executor: instead of the one that the options ask for; it is closed in the end.

    Raises:
        BnpbenchError: before anything runs, when the suite cannot be run here.
    """
    found: set[tuple[str, str]] = set()
    if executor is None and options.cluster is None:
        with suppress(SomethingToDo):
            known = Known(options)
            if selection.suite.select is not None:  # its finals may have something to do, when the trials have told all
                _execute_on(known, selection, options, Progress(), found)
            return _execute_on(known, selection, options, progress, found)
    progress.stage(Phase("imports"))
    executor = executor or _executor(selection.suite, options, progress)
    try:
        return _execute_on(executor, selection, options, progress, found)
    finally:
        executor.close()


def _executor(suite: Suite, options: Options, progress: Progress) -> Executor:
    if options.cluster is None:
        return Local(options, suite)
    from bnpbench.execution.cluster.executor import Cluster  # the only way to Ray

    return Cluster(options, suite, progress)


def _execute_on(
    executor: Executor, selection: Selection, options: Options, progress: Progress, found: set[tuple[str, str]]
) -> Ran:
    selection = selection.on(executor.device, executor.threads)
    suite = selection.suite
    stores = Stores(options.out, suite.name, executor.environments, found)
    measure = partial(_measure, suite, stores, options, progress, executor)
    trials = selection.whole.cells
    failed = measure(trials, selection.cells)
    if suite.select is not None and options.shard is not None:
        progress.note("--shard runs the trials only; when all are there, run without it to choose and train the finals")
    elif suite.select is not None:
        scores = _scores(stores, trials, suite.select.by)
        if unfinished := sum(trial.key not in scores for trial in trials):
            progress.note(
                f"{unfinished} of {number_of(len(trials), 'trial')} {plural(unfinished, 'is', 'are')} not finished, "
                "which may be the best: the finals that are chosen from them wait until all are"
            )
        failed += measure((*trials, *selection.whole.finals(scores)), selection.finals(scores))
    return Ran(failed, frozenset(stores.by_id))


def _measure(
    suite: Suite,
    stores: Stores,
    options: Options,
    progress: Progress,
    executor: Executor,
    whole: Sequence[Cell],
    chosen: Sequence[Cell],
) -> int:
    """Measure what is not finished of the ``chosen`` cells.

    Returns:
        How many failed.
    """
    blocks = _sharded(suite.blocks(chosen), options.shard)
    own = {cell.key: block for block in suite.blocks(whole) for cell in block.cells}  # a part of one has another id
    document = suite.document(whole, epochs=options.epochs)
    stores.refuse_newer(chosen, document)

    def finished(block: Block) -> bool:
        return stores.finished(block) or all(stores.finished(own[cell.key]) for cell in block.cells)

    done = {block.id for block in blocks if not options.fresh and finished(block)}
    todo = [cell for block in blocks if block.id not in done for cell in block.cells]
    costs: dict[str, Costs] = {}
    if todo or not stores.renew():
        executor.begin()
        costs = _checked(suite, options, progress, executor, todo, whole) if todo else {}
        stores.create()
    stores.first.write_suite(document)
    origin = provenance(suite.path.parent) if todo else {}
    return Sweep(stores, executor, options, costs, origin, progress).run(blocks, done)


def _checked(
    suite: Suite,
    options: Options,
    progress: Progress,
    executor: Executor,
    cells: Sequence[Cell],
    whole: Sequence[Cell],
) -> dict[str, Costs]:
    """The costs of cells that are to run, by their key, after a look at all that could go wrong with them."""
    for environment in executor.environments:
        gpu = environment.details.gpu
        check_cuda_only((cell.settings for cell in cells), gpu.capability if gpu else None)
    _check_devices(executor, options, cells)
    for doubt in suite.warnings(cells):
        progress.note(doubt)
    request = Preflight(tuple(cells), options.data_dir, options.offline, whole=tuple(whole), probe=suite.probe)
    return executor.preflight(request, progress.stage)


def _check_devices(executor: Executor, options: Options, cells: Sequence[Cell]) -> None:
    """Several devices of one cell are those of this machine."""
    asked = {(cell.settings.devices, cell.settings.device) for cell in cells if cell.settings.devices > 1}
    for devices, device in sorted(asked):
        if options.cluster is not None:
            raise DeviceError(f"devices = {devices}: on a cluster a cell has one device; take --only devices=1")
        for worker in executor.workers():
            gpus = worker.environment.hardware.gpus
            demand_devices(devices, device, first=worker.gpu or 0, gpus=gpus, cores=executor.threads)


def _scores(stores: Stores, trials: Sequence[Cell], by: str) -> dict[str, float | None]:
    """The last value of a column for each trial that is finished, by its key; None unless it ended well."""
    results = read_results(stores.first.suite_folder)
    here = results.cells[results.cells.environment.isin(stores.by_id)]
    finished = here[here.key.isin([trial.key for trial in trials]) & here.status.isin(FINISHED)]
    ok = finished.key[finished.status == "ok"]
    epochs = results.epochs[results.epochs.key.isin(ok) & results.epochs.environment.isin(stores.by_id)]
    last = epochs.sort_values("epoch").groupby("key")[by].last().dropna()
    scores = {str(key): float(score) for key, score in last.items()}
    return {str(key): scores.get(str(key)) for key in finished.key}


def _sharded(blocks: Sequence[Block], shard: tuple[int, int] | None) -> tuple[Block, ...]:
    """Every n-th block in the order of their ids, so that another order of the suite's axes moves none."""
    if shard is None:
        return tuple(blocks)
    place, count = shard
    mine = set(sorted(block.id for block in blocks)[place - 1 :: count])
    return tuple(block for block in blocks if block.id in mine)
