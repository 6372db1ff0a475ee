"""The two factors of the Hessian with respect to one neuron: the rows that its layer reads, and S^(1/2).

In a network that is piecewise linear from the layer on, the Hessian of the mean softmax cross-entropy with respect to
the bias and weights of one neuron is ``H^T S H``, ``H = [e, h]`` (Propositions 2 and 9), where S has one block for each
example, ``J^T (diag(p) - p p^T) J / N`` with J the Jacobian of the logits with respect to the neuron's pre-activations.
It does not depend on the labels. For a dense layer a block is a number; for a convolution it is full, positions x
positions, and of rank below the number of classes, so that ``(diag(p) - p p^T)^(1/2) J`` is the smaller factor.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.bnp.layer import input_of
from bnpbench.errors import BnpbenchError, NotApplicable

Weighted = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(frozen=True)
class View:
    """One neuron of one layer at one batch of N examples; float64, on the CPU.

    Attributes:
        module: the layer (of a copy of the model).
        inputs: what it read: (N, ..., n), or (N, c, r, ...) of a convolution; of the neuron's group only.
        group: the neuron's group in a grouped convolution, else 0.
        rows: (N, T, n): the rows h of the layer as a matrix, T a position of an example (1 in a plain dense layer),
            columns in the order of ``module.weight[neuron].flatten()``.
        log_weights: (N, K): logarithms of the squares by which the rows of the factor below are to be multiplied.
        directions: (N, K, T): S = sum over the K rows of exp(log_weights) directions^T directions / N, block by block.
            K is the number of classes less one.
    """

    module: Weighted
    inputs: Tensor
    group: int
    rows: Tensor
    log_weights: Tensor
    directions: Tensor

    @property
    def has_bias(self) -> bool:
        return self.module.bias is not None

    def factor(self) -> tuple[Tensor, Tensor]:
        """S^(1/2) up to a number: (N, K') weights of at most 1, and (N, K', T) rows; the largest weight is 1.

        With one row an example (T = 1) the K rows are numbers and become one, K' = 1.
        """
        if self.directions.shape[2] == 1:
            logs = torch.logsumexp(self.log_weights + 2 * self.directions.squeeze(2).abs().log(), 1, keepdim=True)
            directions = torch.ones_like(logs).unsqueeze(2)
        else:
            logs, directions = self.log_weights, self.directions
        largest = logs.max()
        return (0.5 * (logs - largest.clamp(min=torch.finfo(logs.dtype).min))).exp(), directions

    def weighted(self, rows: Tensor) -> Tensor:
        """A = S^(1/2) rows, up to a number, without its zero rows: (N, T, m) to (live rows, m)."""
        weights, directions = self.factor()
        product = (weights.unsqueeze(2) * (directions @ rows)).flatten(0, 1)
        return product[(weights.unsqueeze(2) * directions).flatten(0, 1).any(1)]


def look(model: nn.Module, images: Tensor, layer: str, neuron: int) -> View:
    """Run a copy of the model in float64 and take what the Hessian of one neuron is made of.

    See :func:`bnpbench.measure.conditioning.conditioning` for the arguments and errors.
    """
    copy = deepcopy(model).double().requires_grad_(False)
    module = _find(copy, layer, neuron)
    seen: list[tuple[Tensor, Tensor]] = []

    def cut(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> Tensor:
        leaf = output.detach().requires_grad_()
        seen.append((input_of(args, kwargs).detach(), leaf))
        return leaf.clone()  # what follows may write into it

    handle = module.register_forward_hook(cut, with_kwargs=True)
    devices = [images.device] if images.is_cuda else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        logits = copy(images.double() if images.is_floating_point() else images)
    handle.remove()
    if len(seen) != 1:
        raise NotApplicable(f"layer {layer!r} is called {len(seen)} times in a forward pass; its Hessian has no one H")
    inputs, leaf = seen[0]
    _check_shapes(layer, module, inputs, logits, len(images))
    _check_piecewise_linear(layer, logits, leaf)
    jacobian = _jacobian(logits, leaf, module, neuron)
    log_weights, directions = softmax_factor(torch.log_softmax(logits.detach(), 1), jacobian)
    group = neuron * module.groups // module.out_channels if not isinstance(module, nn.Linear) else 0
    inputs = _of_group(module, inputs, group).cpu()
    return View(module, inputs, group, layer_rows(module, inputs), log_weights.cpu(), directions.cpu())


def layer_rows(module: Weighted, inputs: Tensor) -> Tensor:
    """The rows of a layer as a matrix: (N, T, n), so that ``rows @ weight.flatten(1).T`` is its output less the bias.

    Args:
        module: a Linear, or a convolution, of which ``inputs`` hold one group's channels.
        inputs: (N, ..., n), or (N, c, r, ...).
    """
    if isinstance(module, nn.Linear):
        return inputs.reshape(len(inputs), -1, inputs.shape[-1])
    padding = module._reversed_padding_repeated_twice
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    windows = F.pad(inputs, padding, mode=mode)
    dims = len(module.kernel_size)
    for dim, (taps, step, apart) in enumerate(zip(module.kernel_size, module.stride, module.dilation, strict=True)):
        windows = windows.unfold(2 + dim, apart * (taps - 1) + 1, step)[..., ::apart]
    windows = windows.movedim(1, 1 + dims)  # (N, positions..., c, taps...)
    return windows.flatten(1 + dims).flatten(1, dims)


def softmax_factor(log_p: Tensor, jacobian: Tensor) -> tuple[Tensor, Tensor]:
    """The factor of J^T (diag(p) - p p^T) J by positive products, row by row: square weights' logarithms, rows.

    ``diag(p) - p p^T = L D L^T`` with ``D_j = p_j q_j / q_(j-1)``, ``L_ij = -p_i / q_j`` for i > j, and q_j the sum of
    the probabilities behind j (Tanabe and Sagae 1992); q is summed, never subtracted from 1.

    Args:
        log_p: (N, C), logarithms of the probabilities.
        jacobian: (N, C, T).

    Returns:
        (N, C - 1) and (N, C - 1, T).
    """
    behind = log_p.flip(1).logcumsumexp(1).flip(1)  # log q_(j-1): class j and those behind it
    log_weights = log_p[:, :-1] + behind[:, 1:] - behind[:, :-1]
    classes = log_p.shape[1]
    later = torch.ones(classes, classes, dtype=torch.bool, device=log_p.device).triu(1)[:-1]
    shares = (log_p.unsqueeze(1) - behind[:, 1:].unsqueeze(2)).exp().masked_fill(~later, 0.0)
    return log_weights, jacobian[:, :-1] - shares @ jacobian


def _find(model: nn.Module, layer: str, neuron: int) -> Weighted:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, Weighted)}
    if layer not in layers:
        close = get_close_matches(layer, layers, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(map(repr, layers)) or 'none'}"
        raise BnpbenchError(f"the network has no Linear or Conv layer {layer!r}; {hint}")
    module = layers[layer]
    if not 0 <= neuron < len(module.weight):
        raise BnpbenchError(f"layer {layer!r} has neurons 0 to {len(module.weight) - 1}, not {neuron}")
    return module


def _check_shapes(layer: str, module: Weighted, inputs: Tensor, logits: Tensor, examples: int) -> None:
    if logits.dim() != 2 or len(logits) != examples:
        raise NotApplicable(f"the model gives {tuple(logits.shape)} for {examples} examples, not (examples, classes)")
    if examples < 1 or logits.shape[1] < 2:
        raise NotApplicable(f"{examples} examples of {logits.shape[1]} classes: the Hessian needs 1 and 2 at least")
    batched = isinstance(module, nn.Linear) or inputs.dim() == len(module.kernel_size) + 2
    if len(inputs) != examples or not batched:
        raise NotApplicable(
            f"layer {layer!r} reads {tuple(inputs.shape)}, whose first dimension is not that of {examples} examples"
        )


def _check_piecewise_linear(layer: str, logits: Tensor, leaf: Tensor) -> None:
    """The second derivative of the logits along a random direction is exactly 0 where they are piecewise linear."""
    generator = torch.Generator().manual_seed(0)
    mixed = (logits * torch.randn(logits.shape, generator=generator, dtype=logits.dtype).to(logits.device)).sum()
    (slope,) = torch.autograd.grad(mixed, leaf, create_graph=True)
    if not slope.requires_grad:
        return
    along = (slope * torch.randn(slope.shape, generator=generator, dtype=slope.dtype).to(slope.device)).sum()
    (bend,) = torch.autograd.grad(along, leaf, allow_unused=True, retain_graph=True)
    if bend is not None and bool(bend.any()):
        raise NotApplicable(
            f"the network is not piecewise linear behind layer {layer!r} (it has a smooth activation, or a "
            "normalization by statistics of its input), so that its Hessian is not H^T S H with a semidefinite S"
        )


def _jacobian(logits: Tensor, leaf: Tensor, module: Weighted, neuron: int) -> Tensor:
    """d logits / d pre-activations of the neuron, (N, C, T); no example enters the logits of another."""
    columns = []
    for number in range(logits.shape[1]):
        (gradient,) = torch.autograd.grad(logits[:, number].sum(), leaf, retain_graph=True)
        own = gradient[..., neuron] if isinstance(module, nn.Linear) else gradient[:, neuron]
        columns.append(own.flatten(1) if own.dim() > 1 else own.unsqueeze(1))
    return torch.stack(columns, 1)


def _of_group(module: Weighted, inputs: Tensor, group: int) -> Tensor:
    if isinstance(module, nn.Linear) or module.groups == 1:
        return inputs
    return inputs.chunk(module.groups, 1)[group]
