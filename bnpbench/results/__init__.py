"""Results on disk: one Parquet part a cell, written whole or not at all, read with everything doubtful named."""

from __future__ import annotations

from bnpbench.results.compacting import compact
from bnpbench.results.reading import Results, read_results
from bnpbench.results.schema import FINISHED
from bnpbench.results.store import Store, check_writable

__all__ = [
    "FINISHED",
    "Results",
    "Store",
    "check_writable",
    "compact",
    "read_results",
]
