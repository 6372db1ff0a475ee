"""The data sets: what they are, where they lie, and their tensors."""

from __future__ import annotations

from bnpbench.datasets.splits import Data, split_sizes
from bnpbench.datasets.storage import root
from bnpbench.datasets.stream import Stream, Streams, open_streams
from bnpbench.datasets.table import (
    DATASETS,
    Entry,
    Shape,
    catalogue,
    describe,
    fetch,
    load,
    missing,
    streamed,
)

__all__ = [
    "DATASETS",
    "Data",
    "Entry",
    "Shape",
    "Stream",
    "Streams",
    "catalogue",
    "describe",
    "fetch",
    "load",
    "missing",
    "open_streams",
    "root",
    "split_sizes",
    "streamed",
]
