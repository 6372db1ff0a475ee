"""Results without what no two runs of one suite share."""

from __future__ import annotations

import pandas as pd

TIMES = ("seconds", "joules", "mhz", "memory", "started", "finished", "throttled", "outlier", "other_cores")


def timeless(table: pd.DataFrame, *without: str) -> pd.DataFrame:
    """Cells or epochs without times and the columns ``without``, in a fixed order."""
    columns = [c for c in table.columns if c not in without and not any(word in c for word in TIMES)]
    order = [c for c in ("key", "epoch", "step", "preconditioner") if c in columns]
    return table[columns].sort_values(order).reset_index(drop=True)
