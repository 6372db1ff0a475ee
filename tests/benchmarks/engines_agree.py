"""No engine changes a result: one compiled step against the eager one, for every method, network and optimizer.

    python tests/benchmarks/engines_agree.py [NETWORK…]

From each of ten states along a run, in float64 and float32; prints the largest difference of any weight, buffer,
running value or loss, relative to the largest of its kind. About ten seconds a line.
"""

from __future__ import annotations

import sys

import torch

from tests.training.test_engines import ADAM, METHODS, NETWORKS, SGD, disagreement

GROUPED = ["vanilla", "bn", "renorm", "ln", "gn", "4things", "bnp", "bnp+gn"]


def main() -> None:
    torch.set_num_threads(1)
    for network in sys.argv[1:] or NETWORKS:
        for method in METHODS if network in ("fc", "wide") else GROUPED:
            for optimizer in (SGD, ADAM):
                found = [disagreement(network, method, optimizer, dtype) for dtype in (torch.float64, torch.float32)]
                print(f"{network:7} {method!s:45} {optimizer['kind']:5} float64 {found[0]:.1e}  float32 {found[1]:.1e}")


if __name__ == "__main__":
    main()
