"""BNP's options, for every method that has it, and what such a method may know of the training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from bnpbench.errors import NotApplicable
from bnpbench.fields import AUTOCAST, NonNegativeFloat, Options

if TYPE_CHECKING:
    from torch import nn

    from bnpbench.bnp import BNP

LEAN_CALLS = 3_000_000
"""Operations that would take as long as what the lean form costs beside its own: calls from autograd into Python."""


@dataclass(frozen=True)
class Training:
    """What a method may ask of how its model is trained.

    Attributes:
        batch_size: examples a step, of all devices together.
        devices: that share a batch.
        precision: ``float32``, ``tf32``, or ``bf16`` or ``fp16`` (autocast).
        engine: ``eager``, ``compiled``, ``graphed`` or ``auto``.
        penalized: whether a penalty is added to the loss, whose gradient by-passes the layers.
        device: ``cpu`` or ``cuda``.
        accumulate: micro-batches of a batch, whose gradients are added up.
    """

    batch_size: int
    devices: int = 1
    precision: str = "float32"
    engine: str = "eager"
    penalized: bool = False
    device: str = "cpu"
    accumulate: int = 1


class Preconditioning(Options):
    """BNP's parameters (the paper's Algorithms 2 and 3), and what an ablation switches off."""

    rho: Annotated[float, Field(ge=0, lt=1)] = 0.99
    eps1: NonNegativeFloat = 1e-2
    eps2: NonNegativeFloat = 1e-4
    statistics: Literal["running", "batch"] = "running"
    scale: bool = True  # the factor 1/q^2
    center: bool = True  # the mean mu
    standardize: bool = True  # the damped variance
    first_layer: bool = True  # precondition the layer that reads the input
    form: Literal["auto", "plain", "fused"] = "auto"  # auto: the lean one on dense layers where it is possible and
    # costs less, else the fused one on a GPU

    def bnp(self, model: nn.Module, training: Training) -> BNP:
        """BNP by these parameters on a model.

        Raises:
            NotApplicable: no layer is left to it.
        """
        from bnpbench.bnp import BNP
        from bnpbench.bnp.fused import pays
        from bnpbench.layers import weighted

        names = [name for name, _ in weighted(model)]
        if not names[0 if self.first_layer else 1 :]:
            raise NotApplicable("no layer is preconditioned")
        # A penalty's gradient by-passes the lean form, under autocast the plain one would run, and of the first of
        # several micro-batches it would need what the last one brings. In an eager step the lean one is more launches
        # than the fused one.
        by_gradient = training.devices > 1 or training.precision in AUTOCAST or training.penalized
        by_gradient |= training.accumulate > 1
        fused = self.form == "fused" or (self.form == "auto" and pays(training.device))
        by_gradient |= self.form != "auto" or (fused and training.engine == "eager")
        return BNP(
            model,
            rho=self.rho,
            eps1=self.eps1,
            eps2=self.eps2,
            statistics=self.statistics,
            scale=self.scale,
            center=self.center,
            standardize=self.standardize,
            count="forward",  # the training step takes every forward pass to a backward one
            layers=None if self.first_layer else (lambda name, module: name != names[0]),
            lean=None if by_gradient else partial(_costs_less_lean, training),
            fused=fused if by_gradient else "auto",
        )


def _costs_less_lean(training: Training, name: str, module: nn.Module) -> bool:
    """Whether the lean form of BNP is the cheaper one on a dense layer."""
    from torch import nn

    from bnpbench.bnp.costs import bnp_flops, lean_bnp_flops

    assert isinstance(module, nn.Linear)
    shape = module.in_features, module.out_features, training.batch_size
    calls = LEAN_CALLS if training.engine == "eager" else 0
    return lean_bnp_flops(*shape) + calls < bnp_flops(*shape)
