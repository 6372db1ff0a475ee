"""Runs a suite: machine, cells, preflight, blocks, results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bnpbench.errors import BnpbenchError, DeviceError
from bnpbench.execution.executor import Executor, Local
from bnpbench.execution.messages import Preflight
from bnpbench.execution.options import Options, Outcome, Selection
from bnpbench.execution.precheck import check_cuda_only, check_data, check_device, demand_devices, likely_device
from bnpbench.execution.progress import Progress, Silent
from bnpbench.execution.provenance import provenance
from bnpbench.execution.stores import Stores
from bnpbench.execution.sweep import Sweep
from bnpbench.results import FINISHED, Results, check_writable, read_results
from bnpbench.suite import Block, Cell, Suite


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
    execute(suite, Options(out=Path(out), **options), progress or Silent())
    return read_results(Path(out))


def execute(suite: Suite, options: Options, progress: Progress, executor: Executor | None = None) -> Outcome:
    """Run a suite's blocks that are not finished yet.

    Args:
        suite, options, progress: as of ``run_suite``.
        executor: instead of the one that the options ask for; it is closed in the end.

    Raises:
        BnpbenchError: before anything runs, when the suite cannot be run here.
    """
    check(suite, options)
    executor = executor or _executor(suite, options, progress)
    try:
        return _execute(suite, options, progress, executor)
    finally:
        executor.close()


def _executor(suite: Suite, options: Options, progress: Progress) -> Executor:
    if options.cluster is None:
        return Local(options, suite)
    from bnpbench.execution.cluster.executor import Cluster  # the only way to Ray

    return Cluster(options, suite, progress)


def _execute(suite: Suite, options: Options, progress: Progress, executor: Executor) -> Outcome:
    selection = options.selection(executor.device, executor.threads)
    stores = Stores(options.out, suite.name, executor.environments)
    measure = partial(_measure, suite, stores, options, progress, executor)
    whole, chosen = selection.whole.cells(suite), selection.cells(suite)
    outcome = measure(whole, chosen)
    if suite.select is None:
        return outcome
    if options.shard is not None:
        progress.note("--shard runs the trials only; when all are there, run without it to choose and train the finals")
        return outcome
    scores = _scores(stores, whole, suite.select.by)
    if unfinished := sum(trial.key not in scores for trial in whole):
        progress.note(
            f"{unfinished} of {len(whole)} trials are not finished, and one of them may be the best: the finals that "
            "they choose from wait until all are"
        )
    finals = selection.whole.finals(suite, scores)
    return outcome + measure((*whole, *finals), selection.finals(suite, scores))


def _measure(
    suite: Suite,
    stores: Stores,
    options: Options,
    progress: Progress,
    executor: Executor,
    whole: Sequence[Cell],
    chosen: Sequence[Cell],
) -> Outcome:
    """Measure what is not finished of the ``chosen`` cells, after a look at all that could go wrong with them."""
    check_cuda_only(cell.settings for cell in chosen)
    _check_devices(executor, options, chosen)
    blocks = _sharded(suite.blocks(chosen), options.shard)
    own = {cell.key: block for block in suite.blocks(whole) for cell in block.cells}  # a part of one has another id
    document = suite.document(whole, epochs=options.epochs)
    stores.refuse_newer(chosen, document)

    def finished(block: Block) -> bool:
        return stores.finished(block) or all(stores.finished(own[cell.key]) for cell in block.cells)

    done = {block.id for block in blocks if not options.fresh and finished(block)}
    for doubt in suite.warnings([cell for block in blocks if block.id not in done for cell in block.cells]):
        progress.note(doubt)
    todo = [cell for block in blocks if block.id not in done for cell in block.cells]
    costs = executor.preflight(Preflight(tuple(todo), options.data_dir, options.offline)) if todo else {}
    stores.create()
    stores.first.write_suite(document)
    return Sweep(stores, executor, options, costs, provenance(suite.path.parent), progress).run(blocks, done)


def _check_devices(executor: Executor, options: Options, cells: Sequence[Cell]) -> None:
    """Several devices of one cell are those of this machine."""
    asked = {(cell.settings.devices, cell.settings.device) for cell in cells if cell.settings.devices > 1}
    for devices, device in sorted(asked):
        if options.cluster is not None:
            raise DeviceError(f"devices = {devices}: on a cluster a cell has one device; take --only devices=1")
        worker = executor.workers()[0]
        gpus = worker.environment["hardware"]["gpus"]
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


def check(suite: Suite, options: Options) -> None:
    """What can be refused before torch is imported, which takes seconds. Raises BnpbenchError."""
    if options.jobs > 1 and suite.measure.interleave:
        raise BnpbenchError(
            f"--jobs {options.jobs}: the suite {suite.name} interleaves cells to compare their times, and blocks that "
            "run side by side disturb each other; leave --jobs out, or take `interleave` out of [measure]"
        )
    if options.jobs > 1 and suite.measure.interval is not None:
        raise BnpbenchError(
            f"--jobs {options.jobs}: the suite {suite.name} sets `interval`, which asks for undisturbed times; "
            "leave --jobs out, or take `interval` out of [measure]"
        )
    if options.cluster is None:  # else devices and data are the workers'
        check_device(options.device, f"--device {options.device}")
        chosen = [cell.settings for cell in _chosen(suite, options)]
        if "cuda" in suite.devices() and any(settings.device == "cuda" for settings in chosen):
            check_device("cuda", 'device = "cuda"', remedy="--only device=cpu leaves the cells that need one out")
        check_data({type(settings.dataset) for settings in chosen}, options.data_dir, options.offline)
    check_writable(options.out)


def _chosen(suite: Suite, options: Options) -> tuple[Cell, ...]:
    """The cells of ``--only``, where it is not known for sure yet what "auto" stands for."""
    return Selection(likely_device(options.device), threads=1, only=options.only).cells(suite)


def _sharded(blocks: Sequence[Block], shard: tuple[int, int] | None) -> tuple[Block, ...]:
    """Every n-th block in the order of their ids, so that another order of the suite's axes moves none."""
    if shard is None:
        return tuple(blocks)
    place, count = shard
    mine = set(sorted(block.id for block in blocks)[place - 1 :: count])
    return tuple(block for block in blocks if block.id in mine)
