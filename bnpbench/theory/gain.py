"""Proposition 11, and what Figure 8 shows: how much the preconditioner gains, against kappa(D)^2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

import torch
from torch import Tensor

from bnpbench.theory.activations import Activations, varying
from bnpbench.theory.hessian import extended, normalized
from bnpbench.theory.outcome import Bound, Finding, Setup, statement
from bnpbench.theory.scaling import SLACK, kappa, random_rows


def product_bound(kappa_rows: float, kappa_s: float) -> float:
    """Proposition 11: kappa(H)^2 kappa(S)."""
    return kappa_rows**2 * kappa_s


def gain_bound(kappa_u: float, kappa_d: float) -> float:
    """kappa(Hessian) / kappa(P^T Hessian P) is at most (kappa(U) kappa(D))^2, whatever the rank."""
    return (kappa_u * kappa_d) ** 2


def kappa_of_u(mean: Tensor) -> float:
    """Of [[1, -mu^T], [0, I]]: ((m + sqrt(m^2 + 4)) / 2)^2 with m = |mu|."""
    m = float(mean.norm())
    return ((m + math.sqrt(m * m + 4)) / 2) ** 2


def kappa_of_d(deviation: Tensor) -> float:
    """Of diag(1, 1/sigma)."""
    return max(1.0, deviation.max().item()) / min(1.0, deviation.min().item())


@statement("proposition-11", "kappa(H^T S H) <= kappa(H)^2 kappa(S) for positive definite S")
def proposition_11(setup: Setup) -> Finding:
    """H of any rank, S full or diagonal; also aligned so that both sides meet."""
    bound, generator = Bound(SLACK), setup.generator("proposition-11")
    for trial in range(setup.trials):
        m, n = (int(torch.randint(1, 9, (), generator=generator)) for _ in range(2))
        spectrum = 10 ** (3 * torch.rand(m, generator=generator, dtype=torch.float64) - 3)
        if trial % 2:  # S and H are largest and smallest in the same directions
            spectrum, rows, where = spectrum.sort().values, torch.diag(spectrum.sort().values), f"aligned, {m} x {m}"
            root = torch.diag(spectrum.sqrt())
        else:
            rows, where = random_rows(generator, m, n), f"{m} x {n}"
            turned = torch.linalg.qr(torch.randn(m, m, generator=generator, dtype=torch.float64)).Q
            root = spectrum.sqrt().unsqueeze(1) * turned
        bound.add(kappa(root @ rows) ** 2, product_bound(kappa(rows), kappa(root) ** 2), where)
    for where, rows, weights in _real_hessians(setup, (60, 400)):
        matrix = extended(rows)
        right = product_bound(kappa(matrix), (weights.max() / weights.min()).item())
        bound.add(kappa(weights.sqrt().unsqueeze(1) * matrix) ** 2, right, where)
    return Finding(
        tried=f"{bound.count} pairs of H (any rank, up to 8 x 8) and S with kappa(S) up to 1000",
        worst=bound.worst,
        tightest=bound.tightest,
        verdict=bound.verdict,
        outside=(_semidefinite_s(), _random_semidefinite(setup)),
    )


def _semidefinite_s() -> str:
    """The smallest counterexample: with two rows S has rank 1, and with it H^T S H, whose kappa is then 1."""
    rows = torch.tensor([[1.0], [-1.0], [0.0]], dtype=torch.float64) * math.sqrt(1.5)
    s = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    left = kappa(s.unsqueeze(1) * extended(rows)) ** 2
    return (
        "for semidefinite S (an example with p(1-p) = 0) it is false, kappa over nonzero values: N = 3, n = 1, h = "
        f"sqrt(3/2) (1, -1, 0), S = diag(1, 1, 0): {left:.3f} against {product_bound(kappa(extended(rows)), 1.0):.3f}"
    )


def _random_semidefinite(setup: Setup) -> str:
    generator, ratios, reduced = setup.generator("semidefinite"), [], []
    for _ in range(setup.trials):
        rows = extended(torch.randn(6, 3, generator=generator, dtype=torch.float64))
        s = torch.rand(4, generator=generator, dtype=torch.float64) + 0.1  # of rows 1 to 4; 0 of the other two
        left, kappa_s = kappa(s.sqrt().unsqueeze(1) * rows[:4]) ** 2, (s.max() / s.min()).item()
        ratios.append(left / product_bound(kappa(rows), kappa_s))
        reduced.append(left / product_bound(kappa(rows[:4]), kappa_s))
    broken = sum(ratio > 1 + SLACK for ratio in ratios)
    return (
        f"random H of 6 x 4 and S with two zeros: violated in {broken} of {len(ratios)}, by up to {max(ratios):.3g} "
        f"times; with the rows of s = 0 taken out of H as well the ratio is at most {max(reduced):.3g}"
    )


@statement("figure-8", "kappa(Hessian)/kappa(P^T Hessian P) <= (kappa(U) kappa(D))^2, for any rank")
def figure_8(setup: Setup) -> Finding:
    """The bound that always holds, and how far the gain is from kappa(D)^2."""
    bound, generator = Bound(SLACK), setup.generator("figure-8")
    for trial in range(setup.trials):
        n = int(torch.randint(1, 9, (), generator=generator))
        batch = int(torch.randint(2, 20, (), generator=generator))
        weights = torch.rand(batch, generator=generator, dtype=torch.float64) + 1e-3
        if trial % 2 and batch > n:  # orthogonal normalized rows, equal weights: D alone decides
            scales = 10 ** (4 * torch.rand(n, generator=generator, dtype=torch.float64) - 2)
            rows, weights = orthogonal(generator, batch, n) * scales, torch.ones_like(weights)
        else:
            rows = random_rows(generator, batch, n)
        left, right = _gain(rows, weights)[:2]
        bound.add(left, right, f"N={batch}, n={n}")
    data = setup.data
    moments = [] if data is None else [(data, step, batch) for batch in (60, 400) for step in data.networks]
    real = [_real_gains(bound, *moment) for moment in moments]
    return Finding(
        tried=f"{bound.count} Hessians of one neuron, N from 2 up, any rank",
        worst=bound.worst,
        tightest=bound.tightest,
        verdict=bound.verdict,
        outside=(
            "the gain is about kappa(D)^2 only where D is the reason of the ill-conditioning:",
            *_synthetic_gains(setup),
            *real,
        ),
    )


def _gain(rows: Tensor, weights: Tensor) -> tuple[float, float, float]:
    """The gain, its bound, and kappa(D)^2."""
    root = weights.sqrt().unsqueeze(1)
    left = (kappa(root * extended(rows)) / kappa(root * normalized(rows))) ** 2
    kappa_d = kappa_of_d(rows.std(0, correction=0))
    return left, gain_bound(kappa_of_u(rows.mean(0)), kappa_d), kappa_d**2


def orthogonal(generator: torch.Generator, batch: int, n: int) -> Tensor:
    """(N, n) with zero means, unit variances, orthogonal columns."""
    start = extended(torch.randn(batch, n, generator=generator, dtype=torch.float64))
    q: Tensor = torch.linalg.qr(start).Q
    return q[:, 1:] * math.sqrt(batch)


def _synthetic_gains(setup: Setup) -> Iterator[str]:
    """Medians for centred features whose deviations alone differ, and for ReLU layers at the paper's N and above n."""
    generator = setup.generator("gains")
    repeats = max(3, setup.trials // 10)
    for name, batch, n in (("orthogonal features, scales over 1e4", 60, 20), ("ReLU", 400, 100), ("ReLU", 60, 100)):
        ratios = []
        for _ in range(repeats):
            if name == "ReLU":
                x = torch.randn(batch, 30, generator=generator, dtype=torch.float64)
                rows = (x @ torch.randn(30, n, generator=generator, dtype=torch.float64) / 30**0.5).relu()
            else:
                rows = orthogonal(generator, batch, n)
            rows = rows * 10 ** (4 * torch.rand(n, generator=generator, dtype=torch.float64) - 2)
            weights = torch.rand(batch, generator=generator, dtype=torch.float64) * 0.25
            left, _, squared = _gain(rows, weights)
            ratios.append(left / squared)
        name = f"random {name} layers, scales over 1e4" if name == "ReLU" else name
        yield f"{name}, N={batch}, n={n}: gain / kappa(D)^2 = {median(ratios):.2g} (median)"


def _real_gains(bound: Bound, data: Activations, step: int, batch: int) -> str:
    """The output neuron 0 on all batches of the sample; medians, as the paper's figure shows one a training step."""
    found = []
    for start in range(0, len(data.images) - batch + 1, batch):
        rows, weights = _output_neuron(data, step, slice(start, start + batch))
        left, right, squared = _gain(rows, weights)
        bound.add(left, right, f"{data.name}, step {step}, N={batch}, n={rows.shape[1]}")
        found.append((left, squared, left / squared))
    gain, squared, ratio = (median(column) for column in zip(*found, strict=True))
    return (
        f"{data.name}, step {step}, N={batch}, medians of {len(found)} batches: gain {gain:.3g}, kappa(D)^2 = "
        f"{squared:.3g}, gain / kappa(D)^2 = {ratio:.2g}"
    )


def _real_hessians(setup: Setup, batches: tuple[int, ...]) -> Iterator[tuple[str, Tensor, Tensor]]:
    """One batch at each moment of training."""
    if setup.data is not None:
        for step in setup.data.networks:
            for batch in batches:
                rows, weights = _output_neuron(setup.data, step, slice(batch))
                yield f"{setup.data.name}, step {step}, N={batch}, n={rows.shape[1]}", rows, weights


def _output_neuron(data: Activations, step: int, examples: slice) -> tuple[Tensor, Tensor]:
    """The features that vary in what the output layer reads, and p(1-p)/N of output neuron 0."""
    images, network = data.images[examples].flatten(1), data.networks[step]
    with torch.no_grad():
        rows, p = network[:4](images), network(images).softmax(1)[:, 0]
    return varying(rows), p * (1 - p) / len(rows)
