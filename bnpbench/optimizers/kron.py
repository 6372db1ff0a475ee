"""PSGD with Kronecker factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bnpbench.fields import Fraction, Positive, PositiveFloat
from bnpbench.optimizers.library import LibraryOptimizer


class Kron(LibraryOptimizer):
    """pytorch_optimizer.Kron: preconditioned SGD with Kronecker factors (Li 2018 and 2024).

    Without opt_einsum torch would multiply all its factors out before any of them meets the gradient. It draws random
    vectors from torch's own stream, and from NumPy's when to balance its factors. Weight decay leaves vectors alone.

    Attributes:
        momentum: of the gradients that are preconditioned.
        probability: how often factors are updated, as a share of the steps; None: the author's schedule, from every
            step to 0.03 of them.
        max_dim: a dimension with more entries has a diagonal factor.
        opt_einsum: its version, which the order of the products goes with; filled in as ``version`` is.
    """

    library_name: ClassVar[str] = "Kron"
    beside: ClassVar[Mapping[str, str]] = {"opt_einsum": "opt_einsum"}
    decays: ClassVar[Literal["decoupled"]] = "decoupled"
    kind: Literal["kron"]
    lr: PositiveFloat = 0.01
    momentum: Fraction = 0.9
    probability: Annotated[float, Field(gt=0, le=1)] | None = None
    max_dim: Positive = 8192
    opt_einsum: str | None = None

    def options(self) -> dict[str, Any]:
        return {
            "momentum": self.momentum,
            "pre_conditioner_update_probability": self.probability,
            "max_size_triangular": self.max_dim,
        }
