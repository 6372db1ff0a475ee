"""The data sets: what they are, where they lie, and their tensors.

The names are resolved on first use: where the files lie (``files``, ``storage``) is known without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bnpbench.datasets.splits import Data, split_sizes
    from bnpbench.datasets.storage import root
    from bnpbench.datasets.stream import Stream, Streams, open_streams
    from bnpbench.datasets.table import DATASETS, Entry, Shape, catalogue, describe, fetch, load, missing, streamed

_HOMES = {
    **dict.fromkeys(("Data", "split_sizes"), "splits"),
    **dict.fromkeys(("Stream", "Streams", "open_streams"), "stream"),
    **dict.fromkeys(
        ("DATASETS", "Entry", "Shape", "catalogue", "describe", "fetch", "load", "missing", "streamed"), "table"
    ),
    "root": "storage",
}

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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"bnpbench.datasets.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'bnpbench.datasets' has no attribute {name!r}")
