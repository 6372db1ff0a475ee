"""The weights a network starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bnpbench.fields import Kinded

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class InitializationPlugin(Kinded):
    """A distribution of initial weights; biases start from 0.

    Attributes:
        keeps: whether nothing is drawn: a network starts from the weights that it is built with.
    """

    keeps: ClassVar[bool] = False

    def draw(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        """New values for a weight.

        Args:
            weight: (outputs, inputs, ...) of a dense layer or a convolution, on the CPU, to be written over.
            generator: a generator of the CPU.

        Returns:
            The same shape and type; ``weight`` itself, filled, will do.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no draw()")

    def initialize(self, model: nn.Module, generator: torch.Generator, *, whole: bool = False) -> None:
        """Draw the weights of every dense layer and convolution of ``model`` in order; set their biases to 0.

        Normalization layers keep the ones and zeros that they are built with and draw nothing, so the
        same state of ``generator`` gives every method the same weights. They are drawn in the weight's
        own type on the CPU and copied, so the device does not change them either.

        Args:
            model: changed in place.
            generator: a generator of the CPU.
            whole: for a network with weights of others: what else it has is drawn anew, too. Normalizations start from
                ones and zeros and fresh statistics, and those that a method put in as they were made; other biases
                start from 0; all that has two or more dimensions (weights of attention, embeddings, tokens) is drawn as
                a weight; other vectors keep their values.
        """
        import torch

        from bnpbench.layers import weighted

        with torch.no_grad():
            if whole:
                self._draw_rest(model, generator)
            for _, module in weighted(model):
                if not module.weight.is_meta:
                    module.weight.copy_(
                        self.draw(torch.empty(module.weight.shape, dtype=module.weight.dtype), generator)
                    )
                if module.bias is not None:
                    module.bias.zero_()

    def _draw_rest(self, model: nn.Module, generator: torch.Generator) -> None:
        import torch

        from bnpbench.layers.swap import as_made, normalizes, put_in
        from bnpbench.layers.weighted import WEIGHTED

        own = [module for module in model.modules() if put_in(module)]
        inside = {inner for module in own for inner in module.modules()}
        for module in own:
            as_made(module)
        for module in model.modules():
            if isinstance(module, WEIGHTED) or module in inside:
                continue
            if normalizes(module):
                fresh(module)
                continue
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.dim() < 2:
                    if "bias" in name:
                        parameter.zero_()
                elif not parameter.is_meta:
                    parameter.copy_(self.draw(torch.empty(parameter.shape, dtype=parameter.dtype), generator))


def fresh(module: nn.Module) -> None:
    """A normalization's affine at ones and zeros, and its running statistics as before the first batch."""
    for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        tensor.fill_(1 if name in ("weight", "running_var") else 0)
