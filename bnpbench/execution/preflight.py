"""Before anything runs: are the data there, does every distinct network build and step, what does it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bnpbench.datasets import storage
from bnpbench.errors import DataError, NotApplicable
from bnpbench.execution.messages import Preflight
from bnpbench.measure.step_costs import Columns, Costs
from bnpbench.suite import Settings
from bnpbench.training.accounting import costs


def preflight(request: Preflight) -> dict[str, Costs]:
    """Check every distinct setting once.

    Returns:
        The costs of each cell by its key.

    Raises:
        DataError: a data set is not there.
    """
    root = storage.root(request.data_dir)
    for dataset in dict.fromkeys(type(cell.settings.dataset) for cell in request.cells if request.fetch):
        dataset.fetch(root, offline=request.offline)
    found: dict[Any, Costs] = {}
    answer = {}
    for cell in request.cells:
        settings = cell.settings.costing()
        if settings not in found:
            found[settings] = _costs(settings, root)
        answer[cell.key] = found[settings]
    return answer


def _costs(settings: Settings, root: Path) -> Costs:
    """The costs of a cell, or why there are none: a fault of one cell stops no other."""
    try:
        shape = settings.dataset.found(root)
        return costs(settings, settings.network.reads(shape.input), shape.classes)
    except DataError:
        raise
    except NotApplicable as error:
        return Costs(Columns(), not_applicable=str(error))
    except Exception as error:  # the cell will meet it too, and end with its message and a log
        return Costs(Columns(), uncounted=" ".join(f"{type(error).__name__}: {error}".split()))
