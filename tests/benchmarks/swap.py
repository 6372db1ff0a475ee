"""The swap of each normalization for its own kind, bit for bit, in all networks of torchvision and timm.

``python tests/benchmarks/swap.py [PATTERN...]``, such as ``'timm resnet*'``: a line each, the seconds, and what differs
or cannot be run here. All of them take hours, and the largest 20 GiB.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from copy import deepcopy
from fnmatch import fnmatchcase

import torch
from torch import nn
from torchvision import models

from bnpbench.layers.swap import places
from tests.support.kinds import made
from tests.support.others import outputs, scattered, swapped_for_itself

SIDES = (32, 64, 75, 96, 128, 160, 192, 224, 240, 256, 288, 320, 336, 384, 448, 512)


def smallest(model: nn.Module) -> int | None:
    """The side of the smallest image that it runs on."""
    for side in SIDES:
        try:
            outputs(deepcopy(model), torch.randn(2, 3, side, side))
        except (RuntimeError, AssertionError, ValueError):
            continue
        return side
    return None


def told(model: nn.Module) -> str:
    if not places(model):
        return "no normalizations"
    side = smallest(model)
    if side is None:
        return "runs on no image of these sizes"
    scattered(model)
    x = torch.randn(2, 3, side, side)
    before = outputs(deepcopy(model), x)
    if not all(torch.equal(one, other) for one, other in zip(before, outputs(deepcopy(model), x), strict=True)):
        return "differs from itself"
    after = outputs(swapped_for_itself(model, (3, side, side)), x)
    if all(torch.equal(one, other) for one, other in zip(before, after, strict=True)):
        return f"{side} pixels: same"
    # a class of an author's own may compute the formula of torch's function in another order
    away = max(((one - other).norm() / one.norm()).item() for one, other in zip(before, after, strict=True))
    return f"{side} pixels: DIFFERENT, by {away:.1e}"


def main(patterns: Sequence[str]) -> None:
    import timm

    names = [("torchvision", name) for name in models.list_models(module=models)]
    names += [("timm", name) for name in timm.list_models()]
    for kind, name in names:
        if any(fnmatchcase(f"{kind} {name}", pattern) for pattern in patterns or ["*"]):
            begin = time.perf_counter()
            torch.manual_seed(0)
            try:
                said = told(made("network", {"kind": kind, "name": name}).native((3, 224, 224), 10))
            except Exception as error:
                said = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            print(f"{kind} {name}: {said} ({time.perf_counter() - begin:.1f} s)", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
