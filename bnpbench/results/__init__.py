"""Results on disk: one Parquet part a cell, written whole or not at all, read with everything doubtful named."""

from __future__ import annotations

from bnpbench.results.compacting import compact
from bnpbench.results.differences import differing, setting, telling, told
from bnpbench.results.reading import Results, read_results
from bnpbench.results.schema import CELLS, EPOCHS, FINISHED, SCHEMA_VERSION, STATUSES, STEPS
from bnpbench.results.store import Store, check_writable

__all__ = [
    "CELLS",
    "EPOCHS",
    "FINISHED",
    "SCHEMA_VERSION",
    "STATUSES",
    "STEPS",
    "Results",
    "Store",
    "check_writable",
    "compact",
    "differing",
    "read_results",
    "setting",
    "telling",
    "told",
]
