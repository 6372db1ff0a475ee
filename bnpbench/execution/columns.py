"""The columns of the ``cells`` table that are known before a cell runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bnpbench.measure.costs import Columns
from bnpbench.suite import Block, Cell


def identity(cell: Cell, block: Block, costs: Columns) -> dict[str, Any]:
    """Who the cell is, and what its step costs.

    Args:
        cell: of the block.
        block: in which it is measured.
        costs: its ``measure.costs.Columns``.
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
