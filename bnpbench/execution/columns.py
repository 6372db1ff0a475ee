"""Who a cell is, as columns of the results that are known before it runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bnpbench.measure.step_costs import Columns
from bnpbench.suite import Block, Cell


def identity(cell: Cell, block: Block, costs: Columns) -> dict[str, Any]:
    """The columns of the ``cells`` table that are known before the cell runs.

    Args:
        cell: of the block.
        block: in which it is measured.
        costs: of a step.
    """
    settings = cell.settings
    return {
        "key": cell.key,
        "label": cell.label,
        "block": block.id,
        "role": cell.role,
        "settings": cell.canonical,
        "method": settings.method.kind,
        "network": settings.network.kind,
        "dataset": settings.dataset.kind,
        "batch_size": settings.batch_size,
        "engine": settings.engine,
        "device": settings.device,
        "devices": settings.devices,
        "seed": settings.seed,
        "threads": settings.threads,
        "precision": settings.precision,
        **asdict(costs),
    }
