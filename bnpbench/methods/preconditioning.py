"""BNP's options, for every method that has it, and what such a method may know of the training."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from bnpbench.errors import NotApplicable
from bnpbench.fields import AUTOCAST, NonNegativeFloat, Options

if TYPE_CHECKING:
    from torch import nn

    from bnpbench.bnp import BNP
    from bnpbench.bnp.tracker import Tracker

Patterns = tuple[Annotated[str, Field(min_length=1)], ...]

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
        input_shape: of one example, of a network whose layers may be called in any way; None: each is called once.
        entropy: whether the loss is the cross-entropy, -log of the probability that the softmax gives to a label.
    """

    batch_size: int
    devices: int = 1
    precision: str = "float32"
    engine: str = "eager"
    penalized: bool = False
    device: str = "cpu"
    accumulate: int = 1
    input_shape: tuple[int, ...] | None = None
    entropy: bool = True


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
    layers: Patterns = ()  # patterns of names: "blocks.*", "!head"; absent: all

    def bnp(self, model: nn.Module, training: Training) -> BNP:
        """BNP by these parameters on a model.

        Raises:
            NotApplicable: no layer is left to it.
        """
        from bnpbench.bnp import BNP
        from bnpbench.bnp.fused import pays

        left, once = left_alone(model, training, self.first_layer, self.layers)
        # A penalty's gradient by-passes the lean form, under autocast the plain one would run, and of the first of
        # several micro-batches it would need what the last one brings. In an eager step the lean one is more launches
        # than the fused one.
        by_gradient = training.devices > 1 or training.precision in AUTOCAST or training.penalized
        by_gradient |= training.accumulate > 1 or not once
        fused = self.form == "fused" or (self.form == "auto" and pays(training.device))
        by_gradient |= self.form != "auto" or (fused and training.engine == "eager")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that there is no layer, which is told below
            bnp = BNP(
                model,
                rho=self.rho,
                eps1=self.eps1,
                eps2=self.eps2,
                statistics=self.statistics,
                scale=self.scale,
                center=self.center,
                standardize=self.standardize,
                count="forward" if once else "backward",  # the training step takes every forward pass to a backward one
                layers=(lambda name, module: name not in left) if left else None,
                lean=None if by_gradient else partial(_costs_less_lean, training),
                fused=fused if by_gradient else "auto",
            )
        tell_left_alone(bnp, left)
        return bnp


def left_alone(
    model: nn.Module, training: Training, first_layer: bool, patterns: tuple[str, ...]
) -> tuple[dict[str, str], bool]:
    """Which layers a method's options leave alone.

    Args:
        model: the network.
        training: how it is trained.
        first_layer: whether the layer that reads the input is taken.
        patterns: of names of layers; those behind a ``!`` are left.

    Returns:
        The layers that are left alone, by name, with the reason; and whether each forward pass calls every layer once.

    Raises:
        NotApplicable: no layer remains.
    """
    from bnpbench.layers import calls_of, weighted

    calls = None if training.input_shape is None else calls_of(model, training.input_shape)
    left = dict[str, str]()
    for place, (name, _) in enumerate(weighted(model)):
        if place == 0 and not first_layer:
            left[name] = "the first layer"
        elif not _takes(patterns, name):
            left[name] = "left out by layers"
        elif calls is not None and name in calls.uncalled:
            left[name] = "its weight is used without calling it"
    if len(left) == sum(1 for _ in weighted(model)):
        raise NotApplicable(f"no layer is preconditioned{_told(left)}")
    return left, training.input_shape is None or (calls is not None and calls.once)


def tell_left_alone(tracker: Tracker[Any], left: Mapping[str, str]) -> None:
    """Tell in ``skipped`` why layers are left alone.

    Raises:
        NotApplicable: no layer remains.
    """
    from bnpbench.bnp.tracking import LEFT_OUT

    tracker.skipped.update({name: reason for name, reason in left.items() if tracker.skipped.get(name) == LEFT_OUT})
    if not tracker.layers:
        raise NotApplicable(f"no layer is preconditioned{_told(tracker.skipped)}")


def _takes(patterns: tuple[str, ...], name: str) -> bool:
    """Whether patterns ask for a layer: one fits, if there are any, and none of those behind a ``!``."""
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    without = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return (not wanted or any(fnmatchcase(name, pattern) for pattern in wanted)) and not any(
        fnmatchcase(name, pattern) for pattern in without
    )


def _told(left: Mapping[str, str]) -> str:
    """The first of the layers that are left alone, with the reason."""
    return next((f": {name!r}: {reason}" for name, reason in left.items()), "")


def _costs_less_lean(training: Training, name: str, module: nn.Module) -> bool:
    """Whether the lean form of BNP is the cheaper one on a dense layer."""
    from torch import nn

    from bnpbench.bnp.costs import bnp_flops, lean_bnp_flops

    assert isinstance(module, nn.Linear)
    shape = module.in_features, module.out_features, training.batch_size
    calls = LEAN_CALLS if training.engine == "eager" else 0
    return lean_bnp_flops(*shape) + calls < bnp_flops(*shape)
