"""What ``bnpbench data`` answers."""

from __future__ import annotations

from pathlib import Path

from bnpbench import datasets


def listing(data_dir: Path | None) -> str:
    """A line for each data set: its name, whether it is there and whole, and where it comes from."""
    root = datasets.root(data_dir)
    lines = [f"data folder: {root} (--data-dir, BNPBENCH_DATA, or the user's cache folder)", ""]
    for entry in datasets.catalogue(root):
        state = "missing" if entry.missing else "damaged" if entry.damaged else "there"
        how = f"; fetch it with: bnpbench data get {entry.name}" if entry.missing and entry.downloadable else ""
        lines.append(f"{entry.name:14} {state:8} {entry.source}{how}")
        lines += [f"{'':23} {entry.damaged}"] if entry.damaged else []
    return "\n".join(lines)


def get(name: str, data_dir: Path | None) -> str:
    """Fetch a data set if it is not there or damaged, and say where it lies. Raises DataError."""
    root = datasets.root(data_dir)
    datasets.fetch(name, root, replace=True)
    return f"{name} is under {root}"
