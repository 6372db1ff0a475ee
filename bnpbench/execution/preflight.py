"""Before anything runs: are the data there, does every distinct network build and step, what does it cost."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from bnpbench import datasets, networks
from bnpbench.errors import BnpbenchError, SuiteError
from bnpbench.execution.messages import Preflight
from bnpbench.measure.costs import Columns, Costs
from bnpbench.suite import Settings
from bnpbench.training.accounting import costs

NOT_IN_COSTS = {
    "seed": 1,
    "epochs": 1,
    "train_limit": None,
    "validation": 0.0,
    "threads": 1,
    "device": "cpu",
    "memory_format": "contiguous",
}


def preflight(request: Preflight) -> dict[str, Costs]:
    """Check every distinct setting once.

    Returns:
        The costs of each cell by its key.

    Raises:
        DataError: a data set is not there.
        SuiteError: options that fit no network or batch.
    """
    root = datasets.root(request.data_dir)
    for kind in dict.fromkeys(cell.settings.dataset.kind for cell in request.cells):
        datasets.fetch(kind, root, offline=request.offline)
    found: dict[Any, Costs] = {}
    answer = {}
    for cell in request.cells:
        settings = cell.settings.model_copy(update=NOT_IN_COSTS)
        if settings not in found:
            found[settings] = _costs(settings, root, f"{cell.label} at batch size {settings.batch_size}")
        answer[cell.key] = found[settings]
    return answer


def _costs(settings: Settings, root: Path, name: str) -> Costs:
    try:
        shape = datasets.describe(settings.dataset, root)
        return costs(settings, networks.reads(settings.network, shape.input), shape.classes)
    except BnpbenchError:
        raise
    except Exception as error:
        if settings.plugins:
            return Costs(Columns())  # the cell will meet that error too, and end with its message
        reason = f"{type(error).__name__}: {error}"
        fault = SuiteError(f"{name}: no step can be built ({reason}); change its settings, or leave it out with --only")
        fault.add_note(traceback.format_exc())  # for --debug: the cause does not leave this process
        raise fault from error
