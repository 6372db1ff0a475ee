"""Shampoo."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bnpbench.fields import Positive, PositiveFloat
from bnpbench.optimizers.library import LibraryOptimizer

if TYPE_CHECKING:
    import torch
    from torch import nn


class Shampoo(LibraryOptimizer):
    """pytorch_optimizer.Shampoo: Algorithms 1 and 2 of Gupta, Koren and Singer 2018, without momentum.

    A convolution's kernel has one factor for each of its dimensions, a bias one of its own. The library takes no root
    before step ``every`` and moves no weight until then; here the first step takes one, too.

    Attributes:
        every: steps between two computations of the inverse roots, each by a singular value decomposition. The first
            are of a single gradient: above 1 take a ``matrix_eps`` of 0.1 or 1, or training diverges.
        matrix_eps: what the statistics begin with on their diagonal.
    """

    library_name: ClassVar[str] = "Shampoo"
    decays: ClassVar[Literal["coupled"]] = "coupled"
    kind: Literal["shampoo"]
    lr: PositiveFloat = 0.3
    every: Positive = 1
    matrix_eps: PositiveFloat = 1e-6

    def options(self) -> dict[str, Any]:
        return {"preconditioning_compute_steps": self.every, "matrix_eps": self.matrix_eps}

    def make(
        self, parameters: Iterable[nn.Parameter], *, weight_decay: float, fused: bool, capturable: bool
    ) -> torch.optim.Optimizer:
        made = super().make(parameters, weight_decay=weight_decay, fused=fused, capturable=capturable)

        def first_step_too(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
            first = not optimizer.param_groups[0].get("step")
            vars(optimizer)["preconditioning_compute_steps"] = 1 if first else self.every

        made.register_step_pre_hook(first_step_too)
        return made
