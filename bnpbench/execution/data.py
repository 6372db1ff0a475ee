"""What ``bnpbench data`` answers."""

from __future__ import annotations

from pathlib import Path

from bnpbench.datasets import storage
from bnpbench.datasets.base import DatasetPlugin
from bnpbench.registry import built_in


def listing(data_dir: Path | None) -> str:
    """A line for each data set: its name, whether it is there and whole, and where it comes from."""
    root = storage.root(data_dir)
    lines = [f"data folder: {root} (--data-dir, BNPBENCH_DATA, or the user's cache folder)", ""]
    for name, dataset in built_in().kinds(DatasetPlugin).items():
        missing = dataset.missing(root)
        damaged = None if missing else dataset.damaged(root)
        state = "missing" if missing else "damaged" if damaged else "there"
        how = f"; fetch it with: bnpbench data get {name}" if missing and dataset.downloadable else ""
        lines.append(f"{name:14} {state:8} {dataset.whence()}{how}")
        lines += [f"{'':23} {damaged}"] if damaged else []
    return "\n".join(lines)


def get(name: str, data_dir: Path | None) -> str:
    """Fetch a data set if it is not there or damaged, and say where it lies. Raises DataError."""
    root = storage.root(data_dir)
    built_in().dataset(name).fetch(root, replace=True)
    return f"{name} is under {root}"
