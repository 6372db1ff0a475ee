"""BNP as explicit matrices in float64, from its definition: what the tests compare with.

Nothing here is taken from the package: statistics are means over rows that are listed one below the other, the
preconditioner is the matrix (1/q^2) P P^T, and a convolution's rows are those of its unfolded input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

RHO, EPS1, EPS2 = 0.99, 1e-2, 1e-4


@dataclass
class Oracle:
    """Running values of one layer, and its steps.

    Attributes:
        batch: precondition by the batch's statistics instead of the running ones.
        scale: divide by q^2.
    """

    layer: nn.Module
    batch: bool = False
    scale: bool = True
    eps1: float = EPS1
    eps2: float = EPS2
    mean: Tensor = field(init=False)
    variance: Tensor = field(init=False)

    def __post_init__(self) -> None:
        channels = self.layer.in_features if isinstance(self.layer, nn.Linear) else self.layer.in_channels
        self.mean = torch.zeros(channels, dtype=torch.float64)
        self.variance = torch.ones(channels, dtype=torch.float64)

    def step(self, inputs: list[Tensor], weight_grad: Tensor, bias_grad: Tensor | None) -> Expected:
        """Update the running values by the rows of all ``inputs`` and return the preconditioned gradients."""
        rows = torch.cat([rows_of(self.layer, h.detach().double()) for h in inputs])
        batch_mean = rows.sum(0) / len(rows)
        center = batch_mean if len(rows) > 1 else self.mean
        batch_variance = ((rows - center) ** 2).sum(0) / len(rows)
        self.mean = RHO * self.mean + (1 - RHO) * batch_mean
        self.variance = RHO * self.variance + (1 - RHO) * batch_variance
        mean, variance = (batch_mean, batch_variance) if self.batch else (self.mean, self.variance)
        q2 = scale_of(self.layer, inputs) if self.scale else 1.0
        damping = (self.eps1, self.eps2)
        groups = getattr(self.layer, "groups", 1)
        biases = [None] * groups if bias_grad is None else bias_grad.double().chunk(groups)
        pieces = zip(
            weight_grad.double().chunk(groups), biases, mean.chunk(groups), variance.chunk(groups), strict=True
        )
        weights, new_biases, magnitudes = zip(*(precondition(*piece, *damping, q2) for piece in pieces), strict=True)
        return Expected(torch.cat(weights), None if bias_grad is None else torch.cat(new_biases), max(magnitudes))


@dataclass
class Expected:
    """Preconditioned gradients, and how large the numbers are that they are sums of: rounding errors go by these."""

    weight: Tensor
    bias: Tensor | None
    magnitude: float


def precondition(
    g_w: Tensor, g_b: Tensor | None, mean: Tensor, variance: Tensor, eps1: float, eps2: float, q2: float
) -> tuple[Tensor, Tensor | None, float]:
    """(1/q^2) P P^T [G_b; G_w^T] of one layer or group; a weight of more dimensions has taps."""
    taps = g_w[0, 0].numel()
    damped = (variance + eps1 * variance.max() + eps2).repeat_interleave(taps)
    matrix = inverse_moment(mean.repeat_interleave(taps), damped, g_b is not None) / q2
    columns = g_w.flatten(1).T
    if g_b is None:
        magnitude = (columns.abs() / damped[:, None]).max().item() / q2
        return (matrix @ columns).T.reshape(g_w.shape), None, magnitude
    stacked = torch.cat([g_b[None], columns])
    result = matrix @ stacked
    return result[1:].T.reshape(g_w.shape), result[0], (matrix.abs() @ stacked.abs()).max().item()


def inverse_moment(mean: Tensor, damped: Tensor, ones: bool) -> Tensor:
    """P P^T, or without the column of ones the inverse of diag(sigma~^2) + mu mu^T."""
    if not ones:
        return torch.linalg.inv(torch.diag(damped) + torch.outer(mean, mean))
    n = len(mean)
    shift = torch.eye(n + 1, dtype=mean.dtype)
    shift[0, 1:] = -mean
    P = shift @ torch.diag(torch.cat([mean.new_ones(1), 1 / damped.sqrt()]))
    return P @ P.T


def rows_of(layer: nn.Module, h: Tensor) -> Tensor:
    """The rows that statistics are taken over, one below the other: (R, n)."""
    if isinstance(layer, nn.Linear):
        return torch.stack(list(h.reshape(-1, layer.in_features)))
    if h.dim() == len(layer.kernel_size) + 1:
        h = h[None]
    return torch.cat([example.flatten(1).T for example in h])


def scale_of(layer: nn.Module, inputs: list[Tensor]) -> float:
    """q^2 of all calls together."""
    if isinstance(layer, nn.Linear):
        return max(layer.in_features / sum(h.numel() // layer.in_features for h in inputs), 1.0)
    dims = len(layer.kernel_size)
    examples = [len(h) if h.dim() == dims + 2 else 1 for h in inputs]
    positions = [math.prod(_outputs(layer, h.shape[-dims:])) for h in inputs]
    mean_positions = sum(n * p for n, p in zip(examples, positions, strict=True)) / sum(examples)
    width = layer.in_channels // layer.groups * math.prod(layer.kernel_size)
    return max(width / sum(examples), math.sqrt(mean_positions))


def _outputs(layer: nn.Module, size: torch.Size) -> list[int]:
    """How often the kernel fits into the padded input, along each dimension."""
    counts = []
    for d, length in enumerate(size):
        span = layer.dilation[d] * (layer.kernel_size[d] - 1) + 1
        starts = range(0, length + 2 * layer.padding[d] - span + 1, layer.stride[d])
        counts.append(len(starts))
    return counts


class Watched:
    """A model with an oracle for each Linear and Conv; its own record of what goes into each layer.

    ``inputs`` lists what the layer was called with; a test decides which of these calls count.
    """

    def __init__(self, model: nn.Module, **options: object) -> None:
        kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
        self.layers = {name: module for name, module in model.named_modules() if isinstance(module, kinds)}
        self.oracles = {name: Oracle(module, **options) for name, module in self.layers.items()}
        self.inputs: dict[str, list[Tensor]] = {name: [] for name in self.layers}
        for name, module in self.layers.items():
            module.register_forward_pre_hook(
                lambda _, args, name=name: self.inputs[name].append(args[0].detach().clone())
            )

    def check(self, bnp: object, tolerance: float = 1e-12) -> None:
        """Precondition; compare gradients and running values with the oracles', by the recorded calls; forget those."""
        expected = {
            name: self.oracles[name].step(
                self.inputs[name], layer.weight.grad, None if layer.bias is None else layer.bias.grad
            )
            for name, layer in self.layers.items()
        }
        bnp.precondition()
        state = bnp.state_dict()
        for name, layer in self.layers.items():
            prefix = f"{name}." if name else ""
            assert_close(layer.weight.grad, expected[name].weight, tolerance * expected[name].magnitude)
            if layer.bias is not None:
                assert_close(layer.bias.grad, expected[name].bias, tolerance * expected[name].magnitude)
            mean, variance = self.oracles[name].mean, self.oracles[name].variance
            size = max(mean.abs().max().item(), variance.max().item() ** 0.5)  # of the numbers that a mean is of
            assert_close(state[f"{prefix}running_mean"], mean, tolerance * size)
            assert_close(state[f"{prefix}running_var"], variance, tolerance * variance.max().item())
        self.forget()

    def forget(self) -> None:
        for calls in self.inputs.values():
            calls.clear()


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    assert actual.shape == expected.shape
    error = (actual.double() - expected.double()).abs().max().item()
    assert error <= tolerance, f"largest difference {error:.1e}, allowed {tolerance:.1e}"
