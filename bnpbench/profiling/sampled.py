"""A process of steps for a sampling profiler: ``python -m bnpbench.profiling.sampled REQUEST SECONDS DONE``."""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path

from bnpbench.execution.child import configure
from bnpbench.execution.messages import Profile
from bnpbench.profiling.phases import stepping
from bnpbench.suite import load_plugins


def main(file: Path, seconds: float, done: Path) -> None:
    """Run steps for so long, then make ``done``. The file is ``inspection.sample``'s, for this process alone."""
    plugins, pickled = pickle.loads(file.read_bytes())
    load_plugins(plugins)  # their modules, by which the request's classes are found
    request: Profile = pickle.loads(pickled)
    configure(request.cell.settings, request.gpu)
    step = stepping(request)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        step()
    done.touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
