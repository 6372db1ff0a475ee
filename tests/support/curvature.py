"""Preconditioners as explicit matrices in float64, from their papers: what the tests compare with.

Nothing here is taken from the package. A layer's gradient is a matrix G, one row an output, one column an input, the
bias last; a layer's input is a matrix of rows a, a 1 last where there is a bias: those of a dense layer's input, or one
a position of a convolution's unfolded input. Each group of a convolution is a layer of its own. What multiplies G is
the inverse of one matrix over all its entries, row by row: a Kronecker product written out.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
"""Of outputs and labels, the mean over all labels."""

NEEDS_CURVLINOPS = pytest.mark.skipif(
    importlib.util.find_spec("curvlinops") is None,
    reason="curvlinops is not installed: pip install curvlinops-for-pytorch",
)

KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


# --- a layer as matrices -----------------------------------------------------------------------


def rows_of(layer: nn.Module, h: Tensor) -> list[Tensor]:
    """The rows of a call, a matrix (R, n) or (R, n + 1) for each group."""
    pieces = patches(layer, h)
    return [torch.cat([part, torch.ones(len(part), 1).double()], 1) for part in pieces] if _biased(layer) else pieces


def patches(layer: nn.Module, h: Tensor) -> list[Tensor]:
    """The rows of a call without the ones, (R, n) for each group: examples first, then positions."""
    h = h.detach().double()
    if isinstance(layer, nn.Linear):
        return [h.reshape(-1, layer.in_features)]
    h = _padded(layer, h if h.dim() == len(layer.kernel_size) + 2 else h[None])
    return [_unfolded(layer, part) for part in h.chunk(layer.groups, 1)]


def _padded(layer: nn.Module, h: Tensor) -> Tensor:
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return F.pad(h, [side for width in reversed(layer.padding) for side in (width, width)], mode)


def _unfolded(layer: nn.Module, h: Tensor) -> Tensor:
    """(N, c, r, ...) to (N positions, c k^2): what lies under each tap, position by position."""
    dims = range(len(layer.kernel_size))
    starts = [range(0, h.shape[2 + d] - layer.dilation[d] * (layer.kernel_size[d] - 1), layer.stride[d]) for d in dims]
    taps = list(itertools.product(*(range(size) for size in layer.kernel_size)))
    found = []
    for example, start in itertools.product(h, itertools.product(*starts)):
        places = [[start[d] + layer.dilation[d] * tap[d] for d in dims] for tap in taps]
        found.append(torch.stack([example[(slice(None), *place)] for place in places], 1).flatten())
    return torch.stack(found)


def slopes_of(layer: nn.Module, gradient: Tensor) -> list[Tensor]:
    """What came back to the output of a call, row by row as :func:`rows_of`: (R, n') for each group."""
    gradient = gradient.detach().double()
    if isinstance(layer, nn.Linear):
        return [gradient.reshape(-1, layer.out_features)]
    gradient = gradient if gradient.dim() == len(layer.kernel_size) + 2 else gradient[None]
    return list(gradient.flatten(2).transpose(1, 2).flatten(0, 1).chunk(layer.groups, 1))


def matrices_of(layer: nn.Module, weight: Tensor, bias: Tensor | None) -> list[Tensor]:
    """A gradient, or a value, as matrices: one for each group."""
    groups = getattr(layer, "groups", 1)
    matrix = weight.detach().double().flatten(1)
    if bias is not None:
        matrix = torch.cat([matrix, bias.detach().double()[:, None]], 1)
    return list(matrix.chunk(groups))


def gradients_of(layer: nn.Module, matrices: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """The reverse of :func:`matrices_of`."""
    matrix = torch.cat(list(matrices))
    if not _biased(layer):
        return matrix.reshape(layer.weight.shape), None
    return matrix[:, :-1].reshape(layer.weight.shape), matrix[:, -1]


def _biased(layer: nn.Module) -> bool:
    return layer.bias is not None


# --- what is seen of one batch -----------------------------------------------------------------


@dataclass
class Seen:
    """The calls of one layer in one batch.

    Attributes:
        rows: (R, n + 1), a; one entry a group.
        slopes: (R, n'), b: gradients at the output of the sum of the losses of all labels; one entry a group. Several
            sets for an expectation over labels, with ``weights`` of their outer products.
        weights: (sets, R).
        labels: how many there are.
    """

    rows: list[Tensor]
    slopes: list[list[Tensor]]
    weights: list[Tensor]
    labels: int

    def moment(self, group: int) -> Tensor:
        """A = E[a a^T], the mean over rows."""
        a = self.rows[group]
        return sum(torch.outer(row, row) for row in a) / len(a)

    def mean(self, group: int) -> Tensor:
        """The mean row."""
        return self.rows[group].sum(0) / len(self.rows[group])

    def slope_moment(self, group: int) -> Tensor:
        """B, the sum over rows of E[b b^T] over the number of labels: E[b b^T] of a layer with a row a label."""
        total = torch.zeros(self.slopes[0][group].shape[1], self.slopes[0][group].shape[1]).double()
        for b, weight in zip(self.slopes, self.weights, strict=True):
            for row, share in zip(b[group], weight, strict=True):
                total += share * torch.outer(row, row)
        return total / self.labels

    def mean_slope(self, group: int) -> Tensor:
        """The mean over labels of b, summed over the positions of an example: the gradient of a bias."""
        (b,) = self.slopes
        return b[group].sum(0) / self.labels


def seen(
    model: nn.Module, x: Tensor, labels: Tensor, fisher: str = "empirical", loss: Loss = F.cross_entropy
) -> dict[str, Seen]:
    """All layers of a model in one batch, found example by example.

    Args:
        model: without random parts, whose examples do not mix.
        x: (N, ...).
        labels: (N, ...); of a ``sampled`` Fisher those that were drawn.
        fisher: ``empirical`` and ``sampled`` take the loss at ``labels``; ``exact`` its expectation over labels drawn
            from the model (cross-entropy) or the likelihood whose logarithm is half the squared error.
        loss: of outputs and labels, mean.
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, KINDS)}
    found = {name: Seen([], [], [], labels.numel() if loss is F.cross_entropy else len(labels)) for name in layers}
    collected: dict[str, list[tuple[list[Tensor], list[list[Tensor]], list[Tensor]]]] = {name: [] for name in layers}
    for example, label in zip(x.split(1), labels.split(1), strict=True):
        calls: list[tuple[str, Tensor, Tensor]] = []
        handles = [module.register_forward_hook(partial(_note, name, calls)) for name, module in layers.items()]
        output = model(example)
        for handle in handles:
            handle.remove()
        probes = _probes(output, label, fisher, loss)
        for name, h, s in calls:
            slopes, weights = [], []
            for probe, share in probes:
                (gradient,) = torch.autograd.grad(probe, s, retain_graph=True)
                slopes.append(slopes_of(layers[name], gradient))
                weights.append(torch.full((len(slopes[-1][0]),), share, dtype=torch.float64))
            collected[name].append((rows_of(layers[name], h), slopes, weights))
    for name, parts in collected.items():
        groups, sets = range(len(parts[0][0])), range(len(parts[0][1]))
        found[name].rows = [torch.cat([rows[g] for rows, _, _ in parts]) for g in groups]
        found[name].slopes = [[torch.cat([b[k][g] for _, b, _ in parts]) for g in groups] for k in sets]
        found[name].weights = [torch.cat([w[k] for _, _, w in parts]) for k in sets]
    return found


def _note(
    name: str, calls: list[tuple[str, Tensor, Tensor]], _: nn.Module, args: tuple[Tensor, ...], output: Tensor
) -> Tensor:
    calls.append((name, args[0].detach().clone(), output))
    return output.clone()  # what comes behind may change it in place


def _probes(output: Tensor, label: Tensor, fisher: str, loss: Loss) -> list[tuple[Tensor, float]]:
    """Scalars of one example whose gradients are b, and the weight of b b^T of each.

    Where an example has several labels, b of one is orthogonal in expectation to b of another, for they are drawn
    independently: each gets probes of its own.
    """
    if fisher != "exact":
        return [(loss(output, label) * (label.numel() if loss is F.cross_entropy else 1), 1.0)]
    if loss is not F.cross_entropy:  # half the squared error: b = J^T (f - y), and f - y is standard normal
        return [(entry, 1.0) for entry in output.flatten()]
    logits = output.movedim(1, -1).reshape(-1, output.shape[1])
    probability = logits.detach().softmax(-1)
    return [
        (F.cross_entropy(row[None], torch.tensor([c])), probability[i, c].item())
        for i, row in enumerate(logits)
        for c in range(logits.shape[1])
    ]


def half_squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Half the squared distance, its mean over examples."""
    return 0.5 * (output - target).square().flatten(1).sum(1).mean()


# --- running values ----------------------------------------------------------------------------


def from_the_first(history: Sequence[Tensor], rho: float) -> Tensor:
    """v <- rho v + (1 - rho) s, from v = the first s."""
    shares = [(1 - rho) * rho ** (len(history) - 1 - k) for k in range(len(history))]
    shares[0] = rho ** (len(history) - 1)
    return sum(share * s for share, s in zip(shares, history, strict=True))


def from_zero(history: Sequence[Tensor], rho: float) -> Tensor:
    """v <- rho v + (1 - rho) s from zero, over 1 - rho^t: weights that add up to 1 (Adam's correction)."""
    shares = [rho ** (len(history) - 1 - k) for k in range(len(history))]
    return sum(share / sum(shares) * s for share, s in zip(shares, history, strict=True))


def warmed_up(history: Sequence[Tensor], rho: float) -> Tensor:
    """K-FAC, section 5: the weight of the past in the k-th update is min(1 - 1/k, rho)."""
    value = torch.zeros_like(history[0])
    for k, s in enumerate(history, 1):
        past = min(1 - 1 / k, rho)
        value = past * value + (1 - past) * s
    return value


# --- the methods -------------------------------------------------------------------------------


def divided(matrix: Tensor, G: Tensor) -> Tensor:
    """The inverse of a matrix over all entries of G, row by row, times G."""
    return torch.linalg.solve(matrix, G.flatten()).reshape(G.shape)


def kfac(G: Tensor, A: Tensor, B: Tensor, damping: float) -> Tensor:
    """1503.05671, section 6.3: the inverse of (B + sqrt(l)/pi I) (x) (A + pi sqrt(l) I)."""
    eye_a, eye_b = (torch.eye(len(m), dtype=m.dtype) for m in (A, B))
    pi = ((A.trace() / len(A)) / (B.trace() / len(B))).sqrt()
    return divided(torch.kron(B + damping**0.5 / pi * eye_b, A + pi * damping**0.5 * eye_a), G)


def foof(G: Tensor, A: Tensor, damping: float) -> Tensor:
    """2201.12250: the inverse of I (x) (A + l I)."""
    eye = torch.eye(len(G), dtype=G.dtype)
    return divided(torch.kron(eye, A + damping * torch.eye(len(A), dtype=A.dtype)), G)


def eva(G: Tensor, a: Tensor, b: Tensor, damping: float) -> Tensor:
    """2308.02123: the inverse of (b b^T) (x) (a a^T) + l I."""
    return divided(torch.kron(torch.outer(b, b), torch.outer(a, a)) + damping * torch.eye(G.numel()).double(), G)


def eva_f(G: Tensor, a: Tensor, damping: float) -> Tensor:
    """2308.02123: FOOF of the mean row alone, the inverse of I (x) (a a^T + l I)."""
    return foof(G, torch.outer(a, a), damping)


def mac(G: Tensor, a: Tensor, damping: float) -> Tensor:
    """2506.08464: G (I - a a^T / (l + a^T a)), the projection written out."""
    projection = torch.eye(len(a)).double() - torch.outer(a, a) / (damping + a.dot(a))
    return (torch.kron(torch.eye(len(G)).double(), projection) @ G.flatten()).reshape(G.shape)


def bnp_full(G: Tensor, mean: Tensor, covariance: Tensor, eps1: float, eps2: float, q2: float, bias: bool) -> Tensor:
    """BNP with the whole covariance of features or channels in place of its diagonal.

    With a bias the inverse of the second moment of the rows (a, 1) whose mean is ``mean`` and whose covariance is the
    damped one; without one that of the rows a.

    Args:
        G: (n', n) or (n', c k^2), and the bias's column.
        mean: (n,) or (c,).
        covariance: (n, n) or (c, c), before damping.
        eps1, eps2: damping.
        q2: the scale.
        bias: whether there is that column.
    """
    taps = (G.shape[1] - bias) // len(mean)
    damped = covariance + (eps1 * covariance.diag().max() + eps2) * torch.eye(len(mean)).double()
    # Channel by channel, the taps of each side by side: two taps are taken for uncorrelated.
    moment, mean = torch.kron(damped, torch.eye(taps).double()), torch.kron(mean, torch.ones(taps).double())
    moment = moment + torch.outer(mean, mean)
    if bias:
        moment = torch.cat([torch.cat([moment, mean[:, None]], 1), torch.cat([mean, mean.new_ones(1)])[None]])
    return divided(torch.kron(torch.eye(len(G)).double(), moment), G) / q2


# --- a method on a model -----------------------------------------------------------------------


@dataclass
class Layers:
    """What a method with two sides carries of all layers of a model, and its steps.

    Attributes:
        model: of float64.
        options: of the method, all of them.
    """

    model: nn.Module
    options: dict[str, object]
    history: dict[tuple[str, int], list[tuple[Tensor, Tensor]]] = field(default_factory=dict)
    used: dict[tuple[str, int], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def step(self, batch: dict[str, Seen]) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Take what was seen of a batch, and give the new gradients of the layers for those that are in ``.grad``."""
        found = {}
        for name, of_it in batch.items():
            layer = self.model.get_submodule(name)
            bias = None if layer.bias is None else layer.bias.grad
            matrices = matrices_of(layer, layer.weight.grad, bias)
            new = [self._group(name, g, of_it, G) for g, G in enumerate(matrices)]
            found[name] = gradients_of(layer, new)
        return found

    def _group(self, name: str, g: int, of_it: Seen, G: Tensor) -> Tensor:
        kind, rho, damping = self.options["kind"], self.options["rho"], self.options["damping"]
        past, place = self.history.setdefault((name, g), []), (name, g)
        past.append(
            (of_it.moment(g), of_it.slope_moment(g)) if kind == "kfac" else (of_it.mean(g), of_it.mean_slope(g))
        )
        running = warmed_up if kind == "kfac" else from_the_first
        if (len(past) - 1) % self.options["every"] == 0:
            self.used[place] = tuple(running([each[side] for each in past], rho) for side in range(2))
        return (kfac if kind == "kfac" else eva)(G, *self.used[place], damping)
