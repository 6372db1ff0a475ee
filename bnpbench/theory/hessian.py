"""Proposition 2 and Theorem 3: the Hessian of one neuron of a dense layer, against ``torch.func.hessian``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.theory.outcome import Equality, Finding, Setup, statement

TOLERANCE = 1e-9


def hessian_of(rows: Tensor, curvature: Tensor) -> Tensor:
    """Propositions 2 and 9: ``H^T S H``."""
    return rows.T @ curvature @ rows


def diagonal_curvature(second_derivatives: Tensor) -> Tensor:
    """Proposition 2: S = diag(L''(a_j)) / N."""
    return torch.diag(second_derivatives) / len(second_derivatives)


def extended(rows: Tensor) -> Tensor:
    """``[e, H]``."""
    return torch.cat([torch.ones_like(rows[:, :1]), rows], 1)


def normalized(rows: Tensor) -> Tensor:
    """Theorem 3: the rows [1, (h_j - mu) / sigma]."""
    return extended((rows - rows.mean(0)) / rows.std(0, correction=0))


def preconditioner(rows: Tensor) -> Tensor:
    """Theorem 3: P = U D."""
    n = rows.shape[1]
    u, d = torch.eye(n + 1, dtype=rows.dtype), torch.eye(n + 1, dtype=rows.dtype)
    u[0, 1:] = -rows.mean(0)
    d[1:, 1:] = torch.diag(1 / rows.std(0, correction=0))
    return u @ d


def exact_hessian(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """``torch.func.hessian``, without the warning that its forward-mode rules give when torch first loads them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".torch.jit.script. is deprecated")
        value: Tensor = torch.func.hessian(function)(at)
    return value


@dataclass(frozen=True)
class Neuron:
    """One neuron of a dense layer inside a network, at a batch.

    Attributes:
        rows: (N, n), H: what the layer reads.
        parameters: (n + 1,), [b, w].
        losses: pre-activations (N,) of the neuron -> losses (N,) of the examples, all else as it is.
        where: which network.
    """

    rows: Tensor
    parameters: Tensor
    losses: Callable[[Tensor], Tensor]
    where: str

    def loss(self, parameters: Tensor) -> Tensor:
        """The mean loss as a function of [b, w]."""
        return self.losses(extended(self.rows) @ parameters).mean()

    def second_derivatives(self) -> Tensor:
        """L''(a_j) of every example, (N,)."""
        slope = torch.func.grad(lambda a: self.losses(a).sum())
        second: Tensor = torch.func.grad(lambda a: slope(a).sum())(extended(self.rows) @ self.parameters)
        return second

    def full_curvature(self) -> Tensor:
        """The second derivative of the mean loss in all pre-activations, (N, N), without assuming its form."""
        return exact_hessian(lambda a: self.losses(a).mean(), extended(self.rows) @ self.parameters)


def neuron_of(network: nn.Sequential, layer: int, unit: int, x: Tensor, labels: Tensor, where: str) -> Neuron:
    """The neuron ``unit`` of the dense layer at index ``layer`` of a network under cross-entropy."""
    with torch.no_grad():
        rows = network[:layer](x)
        before = network[layer](rows)
    dense = network[layer]
    assert isinstance(dense, nn.Linear)
    direction = F.one_hot(torch.tensor(unit), before.shape[1]).to(before)

    def losses(a: Tensor) -> Tensor:
        changed = before + (a - before[:, unit]).unsqueeze(1) * direction
        return F.cross_entropy(network[layer + 1 :](changed), labels, reduction="none")

    parameters = torch.cat([dense.bias[unit : unit + 1], dense.weight[unit]]).detach()
    return Neuron(rows, parameters, losses, where)


def random_neurons(setup: Setup, name: str) -> Iterator[Neuron]:
    """Neurons of random networks with one hidden layer: ReLU or tanh, hidden or output."""
    generator = setup.generator(name)
    for _ in range(setup.trials):
        batch, n, classes = (int(torch.randint(low, 9, (), generator=generator)) for low in (3, 1, 2))
        activation, layer = (
            int(torch.randint(2, (), generator=generator)),
            int(torch.randint(2, (), generator=generator)),
        )
        network = nn.Sequential(nn.Linear(n, 5), nn.Tanh() if activation else nn.ReLU(), nn.Linear(5, classes)).double()
        for parameter in network.parameters():
            parameter.requires_grad_(False).copy_(
                torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            )
        x = torch.randn(batch, n, generator=generator, dtype=torch.float64)
        labels = torch.randint(classes, (batch,), generator=generator)
        where = (
            f"N={batch}, n={5 if layer else n}, {'tanh' if activation else 'ReLU'}, {'output' if layer else 'hidden'}"
        )
        yield neuron_of(network, 2 * layer, 0, x, labels, where)


def real_neurons(setup: Setup) -> Iterator[Neuron]:
    """An output and a hidden neuron of the network in training, N = 60."""
    if setup.data is not None:
        for step, network in setup.data.networks.items():
            for layer in (4, 2):
                where = f"{setup.data.name}, step {step}, layer {layer // 2}, N=60, n=100"
                x, labels = setup.data.images[:60].flatten(1), setup.data.labels[:60]
                yield neuron_of(network, layer, 0, x, labels, where)


@statement("proposition-2", "the Hessian of one dense neuron is H^T S H, S = diag(L'')/N")
def proposition_2(setup: Setup) -> Finding:
    """Both sides for neurons of random networks, and of one in training."""
    equal = Equality(TOLERANCE)
    for neuron in [*random_neurons(setup, "proposition-2"), *real_neurons(setup)]:
        found = hessian_of(extended(neuron.rows), diagonal_curvature(neuron.second_derivatives()))
        equal.add(found, exact_hessian(neuron.loss, neuron.parameters), neuron.where)
    return Finding(
        tried=f"{equal.count} neurons against torch.func.hessian",
        worst=equal.worst,
        tightest=equal.tightest,
        verdict=equal.verdict,
        outside=(_behind_batch_norm(setup),),
    )


def _behind_batch_norm(setup: Setup) -> str:
    """The hypothesis that examples do not mix, broken: batch statistics behind the layer."""
    generator = setup.generator("behind batch norm")
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.ReLU(), nn.Linear(4, 3))
    network = network.double()
    for parameter in network.parameters():
        parameter.requires_grad_(False).copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    x = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    neuron = neuron_of(network, 0, 0, x, torch.arange(8) % 3, "")
    exact, full = exact_hessian(neuron.loss, neuron.parameters), neuron.full_curvature()
    error = [(hessian_of(extended(x), s) - exact).abs().max() / exact.abs().max() for s in (full.diag().diag(), full)]
    share = (full - full.diag().diag()).abs().max() / full.abs().max()
    return (
        f"with batch normalization behind the layer S is not diagonal (largest off-diagonal entry {share:.2f} of the "
        f"largest): H^T diag(S) H is off by {error[0]:.2f}, H^T S H with the full S by {error[1]:.0e}"
    )


@statement("theorem-3", "in z, w = Pz, the Hessian is P^T H P = G^T S G with the normalized rows G")
def theorem_3(setup: Setup) -> Finding:
    """The Hessian in z by ``torch.func.hessian``, against both forms."""
    equal, dead = Equality(TOLERANCE), [0, 0]
    for neuron in [*random_neurons(setup, "theorem-3"), *real_neurons(setup)]:
        live = neuron.rows.std(0, correction=0) > 1e-6 * neuron.rows.abs().max()
        dead = [dead[0] + int((~live).sum()), dead[1] + len(live)]
        if not live.any():
            continue
        rest = extended(neuron.rows) @ neuron.parameters - extended(neuron.rows[:, live]) @ (
            own := neuron.parameters[torch.cat([torch.tensor([True]), live])]
        )
        rows, losses = neuron.rows[:, live], neuron.losses
        p, curvature = preconditioner(rows), diagonal_curvature(neuron.second_derivatives())

        def in_z(z: Tensor, rows: Tensor = rows, p: Tensor = p, rest: Tensor = rest, losses: object = losses) -> Tensor:
            assert callable(losses)
            mean: Tensor = losses(extended(rows) @ (p @ z) + rest).mean()
            return mean

        exact = exact_hessian(in_z, torch.linalg.solve(p, own))
        equal.add(hessian_of(normalized(rows), curvature), exact, neuron.where)
        equal.add(p.T @ hessian_of(extended(rows), curvature) @ p, exact, f"{neuron.where} (P^T H P)")
    return Finding(
        tried=f"{equal.count // 2} neurons, two forms each, against torch.func.hessian in z",
        worst=equal.worst,
        tightest=equal.tightest,
        verdict=equal.verdict,
        outside=(
            f"P does not exist for a feature with sigma = 0: {dead[0]} of {dead[1]} features tried were dead and left "
            "out",
        ),
    )
