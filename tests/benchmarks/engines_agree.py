"""No engine changes a result: one compiled step against the eager one, for every method, network and optimizer.

    python tests/benchmarks/engines_agree.py [--rounding] [NETWORK…]

From each of ten states along a run, in float64 and float32; prints the largest difference of any weight, buffer,
running value or loss, relative to the largest of its kind. Ten seconds to two minutes a line.

With ``--rounding`` nothing is compiled: the eager step is compared with itself from weights that are rounded otherwise,
twenty times from each state. Where that makes a difference, as at a ReLU whose argument is all but 0, so may an engine.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from tests.support.engines import ADAM, METHODS, NETWORKS, SGD, away, default, disagreement, of_type

GROUPED = ["vanilla", "bn", "renorm", "ln", "gn", "4things", "bnp", "bnp+gn"]
DTYPES = (torch.float64, torch.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"Some of {', '.join(NETWORKS)}.")
    parser.add_argument("--rounding", action="store_true", help="The eager step against itself.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measure = rounding if options.rounding else disagreement
    for network in options.networks or NETWORKS:
        for method in METHODS if network in ("fc", "wide") else GROUPED:
            for optimizer in (SGD, ADAM):
                found = [measure(network, method, optimizer, dtype) for dtype in DTYPES]
                print(f"{network:7} {method!s:45} {optimizer['kind']:5} float64 {found[0]:.1e}  float32 {found[1]:.1e}")


def rounding(network: str, method: Any, optimizer: dict[str, Any], dtype: torch.dtype) -> float:
    """How far an eager step goes from itself where each weight is moved by about half a unit in its last place."""
    random = torch.Generator().manual_seed(0)
    with default(dtype):
        changes = {"method": method, "optimizer": optimizer, **NETWORKS[network]}
        one, other = (of_type(dtype, engine="eager", **changes) for _ in range(2))
        for trainer in (one, other):
            trainer.step(torch.arange(10))  # builds the optimizer's state
        worst = 0.0
        for batch in one.examples.training(torch.randperm(100), 10, 0):
            before = other.state.snapshot()
            for _ in range(20):
                one.state.restore(before)
                other.state.restore(before)
                for parameter in one.model.parameters():
                    moved = torch.randn(parameter.shape, generator=random) * torch.finfo(dtype).eps / 2
                    parameter.data.mul_(1 + moved)
                worst = max(worst, away(one, other, batch))
        return worst


if __name__ == "__main__":
    main()
