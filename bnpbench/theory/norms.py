"""Proposition 5 and Lemma A2: norms of random matrices over a grid of N and n."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from bnpbench.bnp.algorithms import dense_scale
from bnpbench.theory.hessian import extended
from bnpbench.theory.outcome import Bound, Finding, Setup, statement

BATCHES = (1, 3, 16, 64)
WIDTHS = (3, 16, 64, 256)
LIGHT_CONSTANT = 2.0  # E|G| <= sqrt(N) + sqrt(n) for Gaussian entries (Gordon 1985)

Law = Callable[[torch.Generator, int, int], Tensor]


def _gaussian(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def _uniform(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    return math.sqrt(12) * (torch.rand(rows, columns, generator=generator, dtype=torch.float64) - 0.5)


def _signs(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    return torch.randint(2, (rows, columns), generator=generator).double() * 2 - 1


def _student(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    """Student's t with 3 degrees of freedom, of unit variance: no fourth moment."""
    chi_square = torch.randn(3, rows, columns, generator=generator, dtype=torch.float64).square().sum(0)
    return _gaussian(generator, rows, columns) / chi_square.sqrt()


def _spike(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    """+-sqrt(Nn) with probability 1/(Nn), else 0: unit variance, about one entry a matrix."""
    size = rows * columns
    signs = _signs(generator, rows, columns)
    return signs * math.sqrt(size) * (torch.rand(rows, columns, generator=generator) < 1 / size)


LIGHT: dict[str, Law] = {"Gaussian": _gaussian, "uniform": _uniform, "signs": _signs}
HEAVY: dict[str, Law] = {"t with 3 degrees of freedom": _student, "one spike of probability 1/Nn": _spike}


def norm_bound(batch: int) -> float:
    """Proposition 5: C sqrt(N)."""
    return LIGHT_CONSTANT * math.sqrt(batch)


def seginer_sum(rows: Tensor, columns: Tensor) -> Tensor:
    """Lemma A2: the largest row norm to the k-th plus the largest column norm to the k-th, from those powers."""
    return rows + columns


def scaled_norm(matrix: Tensor) -> float:
    """``|(1/q) [e, G]|``."""
    batch, n = matrix.shape
    return float(torch.linalg.matrix_norm(extended(matrix), 2)) / math.sqrt(dense_scale(n, batch))


@statement("proposition-5", "E|(1/q)[e, G]| <= C sqrt(N), C independent of n, for iid entries and n >= 3")
def proposition_5(setup: Setup) -> Finding:
    """C = 2 is tried, which is proved for Gaussian entries; the mean of some draws at each N and n."""
    bound, generator = Bound(slack=0.05), setup.generator("proposition-5")
    draws = max(2, setup.trials // 15)
    constants = {}
    for name, law in LIGHT.items():
        ratios = []
        for batch in BATCHES:
            for n in WIDTHS:
                norm = _mean([scaled_norm(law(generator, batch, n)) for _ in range(draws)])
                bound.add(norm, norm_bound(batch), f"N={batch}, n={n}, {name}")
                ratios.append(norm / math.sqrt(batch))
        constants[name] = max(ratios)
    return Finding(
        tried=f"{bound.count} means of {draws} draws, N of {BATCHES}, n of {WIDTHS}; C = {LIGHT_CONSTANT:g}",
        worst=bound.worst,
        tightest=bound.tightest,
        verdict=bound.verdict,
        outside=(
            "C as estimated: " + ", ".join(f"{name} {value:.2f}" for name, value in constants.items()),
            *(_growth(name, law, generator, draws) for name, law in HEAVY.items()),
            "so that C exists only for laws with light tails (a bounded fourth moment): the proof takes E max |g_i|^2 "
            "for max E |g_i|^2",
            *_narrow(generator, draws),
            *_real_norms(setup),
        ),
    )


def _growth(name: str, law: Law, generator: torch.Generator, draws: int) -> str:
    """How E|G/q| / sqrt(N) grows along N = n."""
    sizes = (8, 32, 128, 256)
    ratios = [_mean([scaled_norm(law(generator, n, n)) for _ in range(3 * draws)]) / math.sqrt(n) for n in sizes]
    listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    exponent = math.log(ratios[-1] / ratios[0]) / math.log(sizes[-1] / sizes[0])
    return f"{name}: {listed} at N = n = {', '.join(map(str, sizes))}: grows like n^{exponent:.2f}"


def _narrow(generator: torch.Generator, draws: int) -> Iterator[str]:
    norms = [_mean([scaled_norm(_gaussian(generator, 64, n)) for _ in range(draws)]) / 8 for n in (1, 2)]
    yield f"n = 1 and 2, Gaussian, N = 64: {norms[0]:.2f} and {norms[1]:.2f} times sqrt(N)"


def _real_norms(setup: Setup) -> Iterator[str]:
    if setup.data is None:
        return
    for layer in range(3):
        for batch in (6, 60, 600):
            rows = setup.data.live(max(setup.data.networks), layer, batch)
            norm = scaled_norm((rows - rows.mean(0)) / rows.std(0, correction=0)) / math.sqrt(batch)
            where = f"{setup.data.name}, layer {layer}, N={batch}, n={rows.shape[1]}"
            yield f"entries that are not independent: {where}: |G/q| is {norm:.2f} times sqrt(N)"


@statement("lemma-a2", "E|G|^k <= C^k (E max_i |row_i|^k + E max_j |column_j|^k), k <= 2 log max(m, n)")
def lemma_a2(setup: Setup) -> Finding:
    """Seginer: heavy tails too. C = 2 is tried."""
    bound, generator = Bound(slack=0.05), setup.generator("lemma-a2")
    draws, largest = max(2, setup.trials // 15), 0.0
    for name, law in (LIGHT | HEAVY).items():
        for batch in BATCHES:
            for n in WIDTHS:
                matrices = [law(generator, batch, n) for _ in range(draws)]
                k = min(2.0, 2 * math.log(max(batch, n)))
                left = _mean([torch.linalg.matrix_norm(g, 2).item() ** k for g in matrices])
                rows = torch.stack([g.norm(dim=1).max() ** k for g in matrices]).mean()
                columns = torch.stack([g.norm(dim=0).max() ** k for g in matrices]).mean()
                right = seginer_sum(rows, columns).item()
                bound.add(left ** (1 / k), LIGHT_CONSTANT * right ** (1 / k), f"{batch} x {n}, {name}, k={k:.3g}")
                largest = max(largest, (left / right) ** (1 / k) if right else 0.0)
    return Finding(
        tried=f"{bound.count} means of {draws} draws, m of {BATCHES}, n of {WIDTHS}, five laws; C = {LIGHT_CONSTANT:g}",
        worst=bound.worst,
        tightest=bound.tightest,
        verdict=bound.verdict,
        outside=(f"C as estimated: {largest:.2f}, heavy tails included",),
    )


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
