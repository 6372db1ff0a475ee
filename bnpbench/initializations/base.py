"""The weights a network starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bnpbench.fields import Kinded

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class InitializationPlugin(Kinded):
    """A distribution of initial weights; biases start from 0."""

    def draw(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        """New values for a weight.

        Args:
            weight: (outputs, inputs, ...) of a dense layer or a convolution, on the CPU, to be written over.
            generator: a generator of the CPU.

        Returns:
            The same shape and type; ``weight`` itself, filled, will do.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no draw()")

    def initialize(self, model: nn.Module, generator: torch.Generator) -> None:
        """Draw the weights of every dense layer and convolution of ``model`` in order; set their biases to 0.

        Normalization layers keep the ones and zeros that they are built with and draw nothing, so the
        same state of ``generator`` gives every method the same weights. They are drawn in the weight's
        own type on the CPU and copied, so the device does not change them either.

        Args:
            model: changed in place.
            generator: a generator of the CPU.
        """
        import torch

        from bnpbench.layers import weighted

        with torch.no_grad():
            for _, module in weighted(model):
                if not module.weight.is_meta:
                    module.weight.copy_(
                        self.draw(torch.empty(module.weight.shape, dtype=module.weight.dtype), generator)
                    )
                if module.bias is not None:
                    module.bias.zero_()
