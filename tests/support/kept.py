"""What a run has kept of a cell that it is still measuring."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd


def kept(results: Path) -> pd.DataFrame:
    """The epochs so far of a cell under ``results`` whose state is kept beside them; an empty table before that."""
    parts, states = (list(results.glob(f"*/*/{names}")) for names in ("epochs/*.partial.parquet", "checkpoints/*.pt"))
    if not (parts and states):
        return pd.DataFrame()
    return pd.read_parquet(io.BytesIO(parts[0].read_bytes()))  # pandas opens a file twice, between which it is replaced
