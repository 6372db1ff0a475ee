"""Builds every distinct network with its method, as ``run`` does before it runs anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bnpbench.execution.children import ask, start_forkserver
from bnpbench.execution.listing import by_reason, cells_of
from bnpbench.execution.messages import Preflight
from bnpbench.suite import Suite

ERROR = 3  # exit code, as of a run


@dataclass(frozen=True)
class Built:
    """What came of it: lines for a person, and 3 where something cannot be built, else 0."""

    lines: tuple[str, ...]
    exit_code: int

    def text(self) -> str:
        """For a person."""
        return "\n".join(self.lines)


def build(suite: Suite, data_dir: Path | None, *, only: tuple[str, ...] = (), seeds: int | None = None) -> Built:
    """Build the suite's cells without their data, but for image folders, whose classes decide the network.

    Args:
        suite: whose cells.
        data_dir: folder of the data sets.
        only, seeds: as of ``run``.

    Raises:
        DataError: an image folder is not there.
    """
    cells = cells_of(suite, only=only, seeds=seeds)
    start_forkserver()
    costs = ask(Preflight(cells, data_dir, offline=True, fetch=False), suite.plugins)
    unfit = [(cell, reason) for cell in cells if (reason := costs[cell.key].not_applicable)]
    faulty = [(cell, reason) for cell in cells if (reason := costs[cell.key].uncounted)]
    lines = [f"built: {len(cells) - len(faulty)} of {len(cells)} cells"]
    lines += [f"not applicable: {line}" for line in by_reason(unfit)]
    lines += [f"not built: {line}" for line in by_reason(faulty)]
    return Built(tuple(lines), ERROR if faulty else 0)
