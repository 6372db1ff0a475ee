"""Standardized weights: with group normalization, or scaled and without any."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.errors import NotApplicable
from bnpbench.fields import PositiveFloat
from bnpbench.methods.base import Ink, MethodPlugin
from bnpbench.methods.group_norm import Groups

if TYPE_CHECKING:
    from torch import Tensor, nn

_GAMMA_OF_RELU = math.sqrt(2 / (1 - 1 / math.pi))


class WeightStandardization(Groups):
    """Group normalization, and convolutions whose kernels have mean 0 and variance 1 in each output channel.

    Source: Qiao et al. 2019, arXiv 1903.10520. The last layer, where it is a convolution, is left alone as theirs is.

    Attributes:
        weight_eps: added to the variance of the weights.
    """

    ink: ClassVar[Ink] = Ink("#00838a", "#45c4cc", "H")
    kind: Literal["ws+gn"]
    weight_eps: PositiveFloat = 1e-5

    def finish(self, model: nn.Module, input_shape: tuple[int, ...]) -> None:
        from bnpbench.layers import Standardized

        _standardize(self.kind, model, lambda weight: Standardized(self.weight_eps))


class ScaledWeightStandardization(MethodPlugin):
    """No normalization, and convolutions whose kernels keep the variance of a signal: those of NF-ResNets.

    A kernel is γ (W - μ) / (σ √N) in each output channel, N its fan in, times a trained gain (Brock, De and Smith 2021,
    arXiv 2101.08692, Scaled Weight Standardization). What else their residual networks have - the scalars α and β of a
    branch, a scalar that it begins from 0 with - is of a network, and not part of the method; their adaptive clipping
    of gradients is the setting ``clip_adaptive``. The last layer is left alone as theirs is.

    Attributes:
        gamma: γ, 1 over the standard deviation of what the activation makes of a standard normal; that of ReLU.
        weight_eps: added to the variance of the weights.
    """

    ink: ClassVar[Ink] = Ink("#5b7083", "#a3b8cc", "v")
    kind: Literal["scaled-ws"]
    gamma: PositiveFloat = _GAMMA_OF_RELU
    weight_eps: PositiveFloat = 1e-6

    def finish(self, model: nn.Module, input_shape: tuple[int, ...]) -> None:
        from bnpbench.layers import ScaledStandardized

        _standardize(self.kind, model, lambda weight: ScaledStandardized(weight, self.gamma, self.weight_eps))


def _standardize(kind: str, model: nn.Module, how: Callable[[Tensor], nn.Module]) -> None:
    """Have all convolutions but the last layer take their weights through a module that ``how`` makes for each.

    Raises:
        NotApplicable: there is none.
    """
    from torch import nn
    from torch.nn.utils.parametrize import register_parametrization

    from bnpbench.layers import weighted

    convolutions = [layer for _, layer in list(weighted(model))[:-1] if not isinstance(layer, nn.Linear)]
    if not convolutions:
        raise NotApplicable(f"{kind} standardizes the kernels of convolutions, and the network has none")
    for layer in convolutions:
        register_parametrization(layer, "weight", how(layer.weight))
