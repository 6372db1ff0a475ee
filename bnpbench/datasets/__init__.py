"""The data sets: what they are, where they lie, and their tensors."""

from __future__ import annotations

from bnpbench.datasets.splits import Data, split_sizes
from bnpbench.datasets.storage import root
from bnpbench.datasets.table import (
    DATASETS,
    Entry,
    Shape,
    catalogue,
    describe,
    fetch,
    load,
    missing,
)

__all__ = [
    "DATASETS",
    "Data",
    "Entry",
    "Shape",
    "catalogue",
    "describe",
    "fetch",
    "load",
    "missing",
    "root",
    "split_sizes",
]
