"""Theorem 1: the linear rate of gradient descent at a minimum that scalings of the network leave alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from bnpbench.theory.hessian import exact_hessian
from bnpbench.theory.outcome import Bound, Equality, Finding, Setup, both, statement

INPUTS, UNITS = 3, 3
DISTANCE, STEPS = 1e-7, 12  # where gradient descent starts, relative to the minimizer; how long it is followed
ZERO = 1e-9  # eigenvalues below this times the largest are zero
SLACK = 1e-5  # epsilon of the theorem: the second-order term at this distance, and rounding

Loss = Callable[[Tensor], Tensor]


def rate(alpha: float, smallest: float, largest: float) -> float:
    """r = max(|1 - alpha lambda*_min|, |1 - alpha lambda_max|)."""
    return max(abs(1 - alpha * smallest), abs(1 - alpha * largest))


def optimal_rate(kappa: float) -> float:
    """(kappa* - 1) / (kappa* + 1)."""
    return (kappa - 1) / (kappa + 1)


@dataclass(frozen=True)
class Minimum:
    """A one-hidden-layer ReLU network at a minimum.

    Attributes:
        loss: of the flat parameters [u_1, v_1, ..., u_k, v_k, c]: u_j the weights and bias into unit j, v_j those out
            of it, c the output biases.
        theta: the minimizer.
        outputs: of the network.
        where: which.
    """

    loss: Loss
    theta: Tensor
    outputs: int
    where: str

    def units(self, theta: Tensor) -> Tensor:
        """(k, d + 1 + outputs): [u_j, v_j] of each hidden unit."""
        return theta[: -self.outputs].view(UNITS, INPUTS + 1 + self.outputs)

    def tangent(self) -> Tensor:
        """D_t theta* at t = 1, one column a unit: (u_j, -v_j)."""
        columns = torch.zeros(len(self.theta), UNITS, dtype=self.theta.dtype)
        signs = torch.ones(INPUTS + 1 + self.outputs, dtype=self.theta.dtype)
        signs[INPUTS + 1 :] = -1
        for j, unit in enumerate(self.units(self.theta)):
            columns[j * len(signs) : (j + 1) * len(signs), j] = unit * signs
        return columns

    def nearest(self, theta: Tensor) -> Tensor:
        """theta*(t) at the t > 0 that minimizes the distance: for each unit a quartic, solved by Newton from t = 1."""
        own, given = self.units(self.theta), self.units(theta)
        u, v = own[:, : INPUTS + 1], own[:, INPUTS + 1 :]
        uu, vv = u.square().sum(1), v.square().sum(1)
        ua, vb = (u * given[:, : INPUTS + 1]).sum(1), (v * given[:, INPUTS + 1 :]).sum(1)
        t = torch.ones_like(uu)
        for _ in range(8):
            t = t - (t**4 * uu - t**3 * ua + t * vb - vv) / (4 * t**3 * uu - 3 * t**2 * ua + vb)
        scaled = torch.cat([u * t.unsqueeze(1), v / t.unsqueeze(1)], 1)
        return torch.cat([scaled.flatten(), theta[-self.outputs :]])

    def distance(self, theta: Tensor) -> float:
        """From the nearest minimizer; the output biases are not scaled."""
        closest = self.nearest(theta)
        closest[-self.outputs :] = self.theta[-self.outputs :]
        return float((theta - closest).norm())


def network(theta: Tensor, x: Tensor, outputs: int) -> Tensor:
    """(N, outputs) of the network with one hidden layer of ReLU units."""
    units = theta[:-outputs].view(UNITS, INPUTS + 1 + outputs)
    hidden = (x @ units[:, :INPUTS].T + units[:, INPUTS]).relu()
    return hidden @ units[:, INPUTS + 1 :] + theta[-outputs:]


@statement(
    "theorem-1", "gradient descent contracts by r = max|1 - alpha lambda| over nonzero eigenvalues of the Hessian"
)
def theorem_1(setup: Setup) -> Finding:
    """Networks taken to a minimum by Newton's method; several learning rates; starts along the extreme eigenvectors."""
    generator = setup.generator("theorem-1")
    contraction, optimum, null_space = Bound(SLACK), Equality(SLACK), Equality(1e-10)
    minima = [_regression(generator, 40) for _ in range(max(2, setup.trials // 15))]
    if setup.data is not None:
        minima.append(_real_regression(setup, generator))
    for minimum in minima:
        hessian, values, vectors = _spectrum(minimum)
        tangent = minimum.tangent()
        null_space.add_error((hessian @ tangent).norm().item() / (values[-1] * tangent.norm()).item(), minimum.where)
        nonzero = values > ZERO * values[-1]
        smallest, largest = values[nonzero][0].item(), values[-1].item()
        starts = {"smallest": vectors[:, nonzero][:, 0], "largest": vectors[:, -1]}
        starts["random"] = vectors[:, nonzero] @ torch.randn(
            int(nonzero.sum()), generator=generator, dtype=values.dtype
        )
        best = 2 / (smallest + largest)
        for name, alpha in {
            "0.5/max": 0.5 / largest,
            "1/max": 1 / largest,
            "best": best,
            "1.9/max": 1.9 / largest,
        }.items():
            measured = 0.0
            for start, direction in starts.items():
                for ratio in _contractions(minimum, direction, alpha):
                    where = f"{minimum.where}, alpha = {name}, start along the {start} eigenvector"
                    contraction.add(ratio, rate(alpha, smallest, largest), where)
                    measured = max(measured, ratio)
            if name == "best":
                kappa = largest / smallest
                optimum.add_error(abs(measured / optimal_rate(kappa) - 1), f"{minimum.where}, kappa* = {kappa:.3g}")
    return Finding(
        tried=f"{len(minima)} ReLU networks at a minimum, {contraction.count} steps at four learning rates",
        worst=contraction.worst,
        tightest=contraction.tightest,
        verdict=both(contraction.verdict, optimum.verdict, null_space.verdict),
        outside=(
            f"null space: |H D_t theta*| / (|H| |D_t theta*|) at most {null_space.largest:.0e}; at the best alpha the "
            f"slowest contraction is (kappa*-1)/(kappa*+1) within {optimum.largest:.0e}",
            _softmax(generator),
            _few_examples(generator),
            _too_large_a_step(minima[0]),
        ),
    )


def _regression(generator: torch.Generator, examples: int, inputs: Tensor | None = None, where: str = "") -> Minimum:
    """Least squares on a noisy network's outputs, with data away from the kinks, taken to a minimum."""
    theta = torch.randn(UNITS * (INPUTS + 2) + 1, generator=generator, dtype=torch.float64)
    units = theta[:-1].view(UNITS, INPUTS + 2)
    x = torch.randn(60 * examples, INPUTS, generator=generator, dtype=torch.float64) if inputs is None else inputs
    clear = (x @ units[:, :INPUTS].T + units[:, INPUTS]).abs().amin(1) > 0.15
    x = x[clear][:examples]
    noise = 0.02 * torch.randn(len(x), generator=generator, dtype=torch.float64)
    y = network(theta, x, 1)[:, 0] + noise

    def loss(parameters: Tensor) -> Tensor:
        return 0.5 * (network(parameters, x, 1)[:, 0] - y).square().mean()

    minimum = Minimum(loss, _newton(loss, theta), 1, where or f"random data, N={len(x)}")
    active = (x @ units[:, :INPUTS].T + units[:, INPUTS]) > 0
    at_minimum = minimum.units(minimum.theta)
    pre = x @ at_minimum[:, :INPUTS].T + at_minimum[:, INPUTS]
    smooth = bool(((pre > 0) == active).all()) and pre.abs().min().item() > 1e-3
    zeros = int((_spectrum(minimum)[1] < ZERO * _spectrum(minimum)[1][-1]).sum())
    enough = examples < len(theta) or zeros == UNITS
    return minimum if smooth and enough else _regression(generator, examples, inputs, where)


def _real_regression(setup: Setup, generator: torch.Generator) -> Minimum:
    """The same on three random projections of real images."""
    assert setup.data is not None
    images = setup.data.images.flatten(1)
    projected = (images - images.mean(0)) @ torch.randn(
        images.shape[1], INPUTS, generator=generator, dtype=images.dtype
    )
    return _regression(generator, 40, projected / projected.std(0), f"{setup.data.name}, N=40")


def _newton(loss: Loss, theta: Tensor) -> Tensor:
    """To the minimum, in the directions in which the loss bends."""
    for _ in range(20):
        gradient = torch.func.grad(loss)(theta)
        theta = theta - torch.linalg.pinv(exact_hessian(loss, theta), rtol=1e-7, hermitian=True) @ gradient
        if gradient.norm() < 1e-14:
            break
    return theta


def _spectrum(minimum: Minimum) -> tuple[Tensor, Tensor, Tensor]:
    hessian = exact_hessian(minimum.loss, minimum.theta)
    values, vectors = torch.linalg.eigh(hessian)
    return hessian, values, vectors


def _contractions(minimum: Minimum, direction: Tensor, alpha: float) -> list[float]:
    """Distance from the nearest minimizer after a step over that before it."""
    theta = minimum.theta + DISTANCE * minimum.theta.norm() * direction / direction.norm()
    gradient = torch.func.grad(minimum.loss)
    distances = [minimum.distance(theta)]
    for _ in range(STEPS):
        theta = theta - alpha * gradient(theta)
        distances.append(minimum.distance(theta))
        if distances[-1] < 1e-3 * distances[0]:  # below, rounding decides
            break
    return [after / before for before, after in pairwise(distances)]


def _softmax(generator: torch.Generator) -> str:
    """Soft labels of the network itself: an exact minimum of the cross-entropy."""
    classes = 3
    theta = torch.randn(UNITS * (INPUTS + 1 + classes) + classes, generator=generator, dtype=torch.float64)
    x = torch.randn(200, INPUTS, generator=generator, dtype=torch.float64)
    p = network(theta, x, classes).softmax(1)

    def loss(parameters: Tensor) -> Tensor:
        return -(p * network(parameters, x, classes).log_softmax(1)).sum(1).mean()

    values = torch.linalg.eigvalsh(exact_hessian(loss, theta))
    zeros = int((values < ZERO * values[-1]).sum())
    return (
        f"softmax cross-entropy: the null space has dimension {zeros}, not {UNITS}: shifting all logits adds "
        f"{UNITS + 1}, so that Col D_t theta* is not the whole null space"
    )


def _few_examples(generator: torch.Generator) -> str:
    """Fewer examples than weights: more minimizers than the scalings give."""
    minimum = _regression(generator, 6)
    _, values, vectors = _spectrum(minimum)
    zero = values < ZERO * values[-1]
    tangent = torch.linalg.qr(minimum.tangent()).Q
    extra = vectors[:, zero] - tangent @ (tangent.T @ vectors[:, zero])
    smallest, largest = values[~zero][0].item(), values[-1].item()
    alpha = 2 / (smallest + largest)
    measured = max(_contractions(minimum, extra[:, extra.norm(dim=0).argmax()], alpha))
    return (
        f"N = 6 examples for {len(minimum.theta)} weights: the null space has dimension {int(zero.sum())}; the "
        f"distance from theta*(t) contracts by {measured:.6f} along it, r = {rate(alpha, smallest, largest):.6f}"
    )


def _too_large_a_step(minimum: Minimum) -> str:
    _, values, vectors = _spectrum(minimum)
    ratio = _contractions(minimum, vectors[:, -1], 2.1 / values[-1].item())[0]
    return f"alpha = 2.1/lambda_max: the distance grows by {ratio:.3f} a step"
