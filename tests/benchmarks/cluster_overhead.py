"""What a cell costs through a cluster beside the same cell on this machine.

    python tests/benchmarks/cluster_overhead.py [--cells 1000] [--node]

Cells of almost no training (one step of a tiny network), one block each, run twice: here, and through Ray. Without
``--node`` the cluster is started by the run itself (``--cluster local``); with it a head and one node are started
as processes of their own, as on two machines. Only the sweep is timed: from the first cell's start to the
last cell's end, as the results tell, so that starting Ray and importing torch do not count. Run it on an idle
machine. Exits 1 if a cell costs 20 ms more.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from bnpbench import read_results
from tests.support.command import bnpbench, suite
from tests.support.raynodes import RayNodes

LIMIT = 20.0  # milliseconds a cell
SUITE = """
name = "nothing"
[train]
dataset = {{ kind = "synthetic", shape = [4], train = 8, test = 8, classes = 2 }}
network = {{ kind = "fc", hidden = [4] }}
optimizer = {{ kind = "sgd", lr = 0.1 }}
method = "vanilla"
batch_size = 8
epochs = 1
threads = 1
[sweep]
seed = [{seeds}]
"""


def seconds(folder: Path, out: str, cells: int, *options: str) -> float:
    """Seconds from the first cell's start to the last one's end."""
    done = bnpbench("run", folder / "nothing.toml", "--out", out, "--quiet", *options, cwd=folder, timeout=3600)
    assert done.returncode == 0, done.stderr
    rows = read_results(folder / out).cells
    assert len(rows) == cells
    assert set(rows.status) == {"ok"}
    return float((rows.finished.max() - rows.started.min()).total_seconds())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--node", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        suite(folder, SUITE.format(seeds=", \n".join(map(str, range(1, asked.cells + 1)))), "nothing.toml")
        address = "local"
        if asked.node:
            nodes = stack.enter_context(RayNodes())
            nodes.add()
            address = nodes.address
        times = {
            "here": seconds(folder, "here", asked.cells),
            "cluster": seconds(folder, "cluster", asked.cells, "--cluster", address),
        }
    each = {where: 1e3 * total / asked.cells for where, total in times.items()}
    more = each["cluster"] - each["here"]
    print(
        f"{asked.cells} cells: {each['here']:.1f} ms each here, {each['cluster']:.1f} ms through {address}: {more:+.1f}"
    )
    return 0 if more < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
