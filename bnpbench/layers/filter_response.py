"""Filter response normalization, and the thresholded linear unit that takes the place of the ReLU behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from bnpbench.bnp.algorithms import at_least_float32
from bnpbench.bnp.pool import in_backward
from bnpbench.errors import NotApplicable
from bnpbench.layers.probing import on_meta

_RELUS = frozenset({F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})
_THRESHOLDED = "_bnpbench_thresholded"
"""The attribute of a tensor that is to pass the next ReLU."""


class FilterResponseNorm(nn.Module):
    """y = γ x / √(ν² + ε) + β, ν² the mean of x² over an example's positions of a channel; with a threshold, max(y, τ).

    Source: Singh and Krishnan, "Filter Response Normalization Layer", arXiv 1911.09737, equations 1 to 3. Over a single
    position it leaves a sign; what the authors learn there instead of ε is not part of it.

    Args:
        num_features: C.
        eps: added to the mean square.
    """

    def __init__(self, num_features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.num_features, self.eps = num_features, eps
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.tau: nn.Parameter | None
        self.register_parameter("tau", None)

    def extra_repr(self) -> str:
        """The options, for ``print(model)``."""
        return f"{self.num_features}, eps={self.eps}, tlu={self.tau is not None}"

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, C, ...)."""
        shape = (self.num_features, *[1] * (x.ndim - 2))
        squares = at_least_float32(x).square().mean(list(range(2, x.ndim)), keepdim=True)
        scale = (squares + self.eps).rsqrt().to(x.dtype)
        y = torch.addcmul(self.bias.view(shape), x * scale, self.weight.view(shape))
        if self.tau is None:
            return y
        z = torch.maximum(y, self.tau.view(shape))
        setattr(z, _THRESHOLDED, True)
        return z


class Passed(nn.Module):
    """A ReLU, called for several things maybe, that lets pass what has come through a threshold instead.

    A tensor is known by an attribute, which reentrant checkpointing does not carry to its recomputation.

    Args:
        relu: the network's.
    """

    def __init__(self, relu: nn.ReLU) -> None:
        super().__init__()
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        """``x`` as it is where it comes from a threshold.

        Raises:
            NotApplicable: reentrant checkpointing begins at this call, so that nobody knows where ``x`` comes from.
        """
        if x.__dict__.get(_THRESHOLDED, False):
            return x.view_as(x)
        if x.is_leaf and x.requires_grad and in_backward():
            raise NotApplicable(
                "reentrant checkpointing begins between a normalization and the ReLU whose place tlu takes: "
                "use_reentrant=False, or tlu = false"
            )
        y: Tensor = self.relu(x)
        return y


def threshold(model: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Give a threshold, from 0, to each filter response normalization that a ReLU alone follows, and take that away.

    Args:
        model: a network, changed in place.
        input_shape: of one example.

    Raises:
        NotApplicable: it cannot be run without data, on ``meta``; a ReLU is a function call; or none follows.
    """
    layers, relus = list[FilterResponseNorm](), dict[nn.Module, Passed]()
    for name, layer, uses in _uses(model, input_shape):
        if len(uses) == 1 and uses[0] in _RELUS:
            raise NotApplicable(
                f"the ReLU behind {name!r} is a function that the network's code calls, and tlu cannot take its place: "
                "tlu = false leaves it there"
            )
        relu = uses[0] if len(uses) == 1 else None
        if isinstance(relu, nn.ReLU):
            layers.append(layer)
            relus[relu] = Passed(relu)
    if not layers:
        raise NotApplicable("no ReLU follows a normalization, whose place tlu could take: tlu = false does without")
    for layer in layers:
        layer.tau = nn.Parameter(torch.zeros_like(layer.bias), layer.bias.requires_grad)
    modules: list[Any] = list(model.modules())
    for module in modules:
        for name, child in module._modules.items():
            module._modules[name] = relus.get(child, child)


def _uses(model: nn.Module, input_shape: tuple[int, ...]) -> list[tuple[str, FilterResponseNorm, Sequence[object]]]:
    """For each filter response normalization what takes its output: modules that are a ReLU, and functions.

    Raises:
        NotApplicable: the network cannot be run without data, on ``meta``.
    """
    copy, uses = on_meta(model).train(), _Uses()
    for module in copy.modules():
        if isinstance(module, FilterResponseNorm):
            module.register_forward_hook(uses.begin)
        elif type(module) is nn.ReLU:
            module.register_forward_pre_hook(uses.enter)
            module.register_forward_hook(uses.leave)
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), uses:
            copy(torch.empty(2, *input_shape, device="meta"))
    except Exception as error:  # of any kind: it looks at values that are not there
        raise NotApplicable(
            "which ReLU tlu takes the place of is only found by a forward pass without data, which ends in "
            f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        ) from error
    origin = dict(zip(copy.modules(), model.modules(), strict=True))
    return [
        (name, module, [origin.get(one, one) if isinstance(one, nn.Module) else one for one in uses.found[place]])
        for (name, module), place in zip(model.named_modules(), copy.modules(), strict=True)
        if isinstance(module, FilterResponseNorm) and place in uses.found
    ]


class _Uses(TorchFunctionMode):
    """Notes, while it is on, what takes the outputs of modules.

    Attributes:
        found: of each module, over all its calls, each only once where it is the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[nn.Module, list[object]] = {}
        self._outputs: dict[int, tuple[nn.Module, Tensor]] = {}  # kept, so that no other takes its number
        self._inside: list[nn.Module] = []

    def begin(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        """The hook of a module whose outputs are followed."""
        self._outputs[id(output)] = module, output
        self.found.setdefault(module, [])

    def enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """The hook of a ReLU that is called."""
        self._inside.append(module)

    def leave(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        """The hook of a ReLU that was called."""
        self._inside.pop()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        for leaf in tree_leaves((args, kwargs)):
            if made and id(leaf) in self._outputs:
                module, _ = self._outputs[id(leaf)]
                taker = self._inside[-1] if self._inside and func in _RELUS else func
                if taker not in self.found[module]:
                    self.found[module].append(taker)
                if any(one is leaf for one in made):  # written over: what comes next takes that
                    del self._outputs[id(leaf)]
        return result
