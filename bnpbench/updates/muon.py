"""Muon on matrices and on kernels as matrices, beside AdamW on all that is neither."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim._muon import _adjust_lr, _zeropower_via_newtonschulz

HIDDEN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.modules.conv._ConvTransposeNd, nn.MultiheadAttention)


def hidden_matrices(model: nn.Module, *, head: bool) -> list[nn.Parameter]:
    """What Muon serves: the weights of dense layers, convolutions and attentions that no embedding shares.

    Of a weight that is computed from one tensor, as a standardized kernel is, that tensor.

    Args:
        model: any module.
        head: whether the last of these layers, in the model's order, is served, too.

    Returns:
        Parameters of two or more dimensions, in the model's order, each once.
    """
    layers = [module for module in model.modules() if isinstance(module, HIDDEN)]
    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)]
    others = [*embeddings, *([] if head else layers[-1:])]
    left = {id(parameter) for module in others for _, parameter in _own(module)}
    found = {
        parameter: None
        for layer in layers
        for name, parameter in _own(layer)
        if name.endswith("weight") and parameter.dim() > 1 and id(parameter) not in left
    }
    return list(found)


def _own(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """A module's parameters by name; of one that is parametrized, the original, but no parameter of its computation."""
    yield from module.named_parameters(recurse=False)
    if parametrize.is_parametrized(module):
        assert isinstance(module.parametrizations, nn.ModuleDict)
        for name, computed in module.parametrizations.items():
            if isinstance(original := getattr(computed, "original", None), nn.Parameter):
                yield name, original


class MuonBesideAdamW(torch.optim.Optimizer):
    """The step of :class:`torch.optim.Muon` on matrices, and that of AdamW on the rest, as one optimizer.

    Muon's differs from torch's in two ways. A kernel of (out, in, ...) is updated as the matrix (out, in * ...), which
    torch's refuses. And the learning rate may be a tensor: torch's step reads it back, which can neither be traced nor
    recorded. Its orthogonalization and the scale of its learning rate are torch's own functions.

    Args:
        matrices: at least one parameter, of two or more dimensions.
        rest: an AdamW over the other parameters; None where there are none.
        like: a :class:`torch.optim.Muon`, whose options are taken.

    Attributes:
        rest: as given; it has its groups and its state in common with this one.
        follow: called before each step of ``rest``, which may set its learning rate.
    """

    def __init__(
        self, matrices: Sequence[nn.Parameter], rest: torch.optim.AdamW | None, like: torch.optim.Muon
    ) -> None:
        groups: list[dict[str, Any]] = [{"params": list(matrices), **like.defaults}]
        groups += rest.param_groups if rest is not None else []
        super().__init__(groups, dict.fromkeys({name for group in groups for name in group} - {"params"}))
        self.rest = rest
        self.follow: Callable[[], object] = lambda: None
        self._share()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of both.

        Args:
            closure: none is taken.
        """
        group = self.param_groups[0]
        for parameter in group["params"]:
            if parameter.grad is not None:
                self._turn(parameter, parameter.grad, group)
        if self.rest is not None:
            self.follow()
            self.rest.step()

    def _turn(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state, momentum = self.state[parameter], group["momentum"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        average = state["momentum_buffer"]
        average.lerp_(grad, 1 - momentum)
        update = (grad.lerp(average, momentum) if group["nesterov"] else average).flatten(1)
        turned = _zeropower_via_newtonschulz(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        scale = _adjust_lr(1.0, group["adjust_lr_fn"], update.shape)
        if group["weight_decay"]:
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(turned.to(parameter.dtype).reshape(parameter.shape) * (group["lr"] * scale))

    def _share(self) -> None:
        """One state and one list of groups for both."""
        if self.rest is not None:
            self.rest.state, self.rest.param_groups = self.state, self.param_groups[1:]
