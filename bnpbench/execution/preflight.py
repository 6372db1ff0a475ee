"""Before anything runs: are the data there, does every distinct network build and step, what does it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bnpbench import datasets, networks
from bnpbench.errors import DataError, NotApplicable
from bnpbench.execution.messages import Preflight
from bnpbench.measure.step_costs import Columns, Costs
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
    """
    root = datasets.root(request.data_dir)
    for kind in dict.fromkeys(cell.settings.dataset.kind for cell in request.cells if request.fetch):
        datasets.fetch(kind, root, offline=request.offline)
    found: dict[Any, Costs] = {}
    answer = {}
    for cell in request.cells:
        settings = cell.settings.model_copy(update=NOT_IN_COSTS)
        if settings not in found:
            found[settings] = _costs(settings, root)
        answer[cell.key] = found[settings]
    return answer


def _costs(settings: Settings, root: Path) -> Costs:
    """The costs of a cell, or why there are none: a fault of one cell stops no other."""
    try:
        shape = datasets.describe(settings.dataset, root)
        return costs(settings, networks.reads(settings.network, shape.input), shape.classes)
    except DataError:
        raise
    except NotApplicable as error:
        return Costs(Columns(), not_applicable=str(error))
    except Exception as error:  # the cell will meet it too, and end with its message and a log
        return Costs(Columns(), uncounted=" ".join(f"{type(error).__name__}: {error}".split()))
