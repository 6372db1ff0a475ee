"""Group normalization with standardized weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from bnpbench.errors import NotApplicable
from bnpbench.fields import PositiveFloat
from bnpbench.methods.base import Ink
from bnpbench.methods.group_norm import Groups

if TYPE_CHECKING:
    from torch import nn


class WeightStandardization(Groups):
    """Group normalization, and convolutions whose kernels have mean 0 and variance 1 in each output channel.

    Source: Qiao et al. 2019, arXiv 1903.10520. The last layer, where it is a convolution, is left alone as theirs is.

    Attributes:
        weight_eps: added to the variance of the weights.
    """

    ink: ClassVar[Ink] = Ink("#00838a", "#45c4cc", "H")
    kind: Literal["ws+gn"]
    weight_eps: PositiveFloat = 1e-5

    def reshape_weights(self, model: nn.Module) -> None:
        from torch import nn
        from torch.nn.utils.parametrize import register_parametrization

        from bnpbench.layers import Standardized, weighted

        convolutions = [layer for _, layer in list(weighted(model))[:-1] if not isinstance(layer, nn.Linear)]
        if not convolutions:
            raise NotApplicable(f"{self.kind} standardizes the kernels of convolutions, and the network has none")
        for layer in convolutions:
            register_parametrization(layer, "weight", Standardized(self.weight_eps))
