"""Two eager steps of every distinct cell of every shipped suite: ``bnpbench check --smoke`` for all of them.

    python tests/benchmarks/smoke.py [SUITE...]

Prints a table with a row a suite, then what was not finite, raised an error, has no meaning or was not tried. The
ResNets of 110 layers and ImageNet's take minutes each on two cores. Exits with the highest code of the suites.
"""

from __future__ import annotations

import sys
import time

from tabulate import tabulate

from bnpbench.execution.listing import STATUSES, smoke_check
from bnpbench.execution.options import Options
from bnpbench.suite import load_suite, shipped_suites

HEADS = ("suite", "cells", "distinct", "finite", *STATUSES, "generated data", "seconds", "slowest cell", "peak GiB")


def main(names: list[str]) -> int:
    rows, texts, code = [], [], 0
    for name in names or sorted(shipped_suites()):
        begin = time.perf_counter()
        found = smoke_check(Options().selection(load_suite(name)))
        seconds = time.perf_counter() - begin
        counts = found.counts()
        rows.append(
            (
                name,
                found.cells,
                len(found.tried),
                *(counts[status] for status in ("finite", *STATUSES)),
                ", ".join(found.replaced),
                f"{seconds:.0f}",
                f"{max(one.seconds for one in found.tried):.1f}",
                f"{max(one.peak_memory_bytes for one in found.tried) / 2**30:.1f}",
            )
        )
        texts.append(found.text())
        code = max(code, found.exit_code)
    print(tabulate(rows, HEADS, tablefmt="github"))
    print("\n" + "\n\n".join(texts))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
