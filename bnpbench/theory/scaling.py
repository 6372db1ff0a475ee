"""Theorem 4 and Lemma A1: centring and scaling of columns, against the best scaling that an optimizer finds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from bnpbench.theory.hessian import extended, normalized
from bnpbench.theory.outcome import Bound, Finding, Setup, both, statement

SLACK = 1e-7  # condition numbers of up to 1e6 have seven digits
WIDTHS = (1, 2, 3, 5, 8)


def centred(rows: Tensor) -> Tensor:
    """``H U = [e, H - e mu^T]``."""
    return extended(rows - rows.mean(0))


def unit_columns(matrix: Tensor) -> Tensor:
    """``A D`` with D the inverse norms of the columns."""
    norms: Tensor = torch.linalg.vector_norm(matrix, dim=-2, keepdim=True)
    return matrix / norms


def centring_bound(kappa: float) -> float:
    """Theorem 4, first part: kappa(HU) is at most this, for kappa = kappa(H)."""
    return kappa


def scaling_factor(columns: int) -> float:
    """Theorem 4, second part, and Lemma A1: how far equal norms may be from the best scaling of so many columns."""
    return math.sqrt(columns)


def kappa(matrix: Tensor) -> float:
    """sigma_max over the smallest nonzero singular value."""
    sigma = torch.linalg.svdvals(matrix)
    return float(sigma[0] / sigma[sigma > max(matrix.shape) * torch.finfo(sigma.dtype).eps * sigma[0]][-1])


def best_scaling(matrices: Tensor, steps: int = 120) -> Tensor:
    """The least condition number over diagonal scalings of the columns, for each of (B, m, n), found by Adam.

    The logarithm of the condition number as a function of the scaling has no local minimum but the global one
    ({E : E <= A^T A <= kappa^2 E} is convex). The search starts at equal norms.
    """
    triangles: Tensor = torch.linalg.qr(unit_columns(matrices)).R
    logs = torch.zeros(len(matrices), 1, matrices.shape[2], dtype=matrices.dtype, requires_grad=True)
    optimizer = torch.optim.Adam([logs], lr=0.1)
    best = torch.full((len(matrices),), math.inf, dtype=matrices.dtype)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / steps)
        sigma = torch.linalg.svdvals(triangles * logs.exp())
        ratio = sigma[:, 0] / sigma[:, -1]
        best = torch.minimum(best, ratio.detach())
        optimizer.zero_grad()
        ratio.log().sum().backward()
        optimizer.step()
    return best


def random_rows(generator: torch.Generator, batch: int, n: int) -> Tensor:
    """(N, n): correlated features with scales over four and means over six orders of magnitude."""
    base = torch.randn(batch, n, generator=generator, dtype=torch.float64)
    mixed = base @ torch.randn(n, n, generator=generator, dtype=torch.float64)
    scales = 10 ** (4 * torch.rand(n, generator=generator, dtype=torch.float64) - 2)
    means = torch.randn(n, generator=generator, dtype=torch.float64)
    means = means * 10 ** (6 * torch.rand((), generator=generator, dtype=torch.float64) - 4)
    return mixed * scales + means


def hard_columns(generator: torch.Generator, rows: int, n: int) -> Tensor:
    """(rows, n): nearly parallel columns, two of them far more so, which come nearest to the bound, at sqrt(n/2).

    The smallest singular value lies in the difference of those two alone, so that shrinking all others costs nothing.
    """
    start, *others = torch.randn(n, rows, generator=generator, dtype=torch.float64)
    apart = [1e-4, *[1e-2] * (n - 2)]
    columns = [start, *(start + share * other for share, other in zip(apart, others, strict=False))]
    matrix = torch.stack(columns, 1)
    return matrix - matrix.mean(0)


@statement("theorem-4", "kappa(HU) <= kappa(H); kappa(G) <= sqrt(n+1) min over diagonal D0 of kappa(HUD0)")
def theorem_4(setup: Setup) -> Finding:
    """Full column rank: N >= n + 1."""
    generator = setup.generator("theorem-4")
    centring, scaling, least = Bound(SLACK), Bound(SLACK), math.inf
    for n in WIDTHS:
        instances = [
            random_rows(generator, int(torch.randint(n + 1, 3 * n + 5, (), generator=generator)), n)
            for _ in range(max(1, setup.trials // len(WIDTHS)))
        ]
        for rows in instances:
            before, after = kappa(extended(rows)), kappa(centred(rows))
            centring.add(after, centring_bound(before), f"N={len(rows)}, n={n} (centring)")
            if _must_be_strict(rows):
                least = min(least, 1 - after / before)
        if n > 1:
            instances.append(hard_columns(generator, n + 3, n))
        _compare_scaling(scaling, instances, "scaling")
    for where, rows in _real_rows(setup):
        centring.add(kappa(centred(rows)), centring_bound(kappa(extended(rows))), f"{where} (centring)")
        _compare_scaling(scaling, [rows], f"scaling, {where}")
    strict = least > 0
    return Finding(
        tried=f"{centring.count} matrices with N > n (centring), {scaling.count} with the best scaling found by Adam",
        worst=max((centring, scaling), key=lambda bound: bound.tightest).worst,
        tightest=max(centring.tightest, scaling.tightest),
        verdict=both(centring.verdict, scaling.verdict, "holds" if strict else "violated"),
        outside=(
            f"largest ratio of the second part: {scaling.tightest:.3f} (the hard family tends to sqrt(n/2)/sqrt(n+1))",
            f"strict where mu is neither 0 nor orthogonal to x_max: 1 - kappa(HU)/kappa(H) is at least {least:.1e}",
            _strict_without_the_condition(),
            _without_full_column_rank(),
            *_wide_matrices(setup),
        ),
    )


def _compare_scaling(bound: Bound, instances: list[Tensor], where: str) -> None:
    """kappa(G) of each against the best scaling of HU; instances of different heights share the search."""
    columns = instances[0].shape[1] + 1
    triangles = torch.stack([torch.linalg.qr(unit_columns(centred(rows))).R for rows in instances])
    for rows, best in zip(instances, best_scaling(triangles).tolist(), strict=True):
        size = f"N={len(rows)}, n={columns - 1}"
        bound.add(kappa(normalized(rows)), scaling_factor(columns) * best, f"{size} ({where})")


def _must_be_strict(rows: Tensor) -> bool:
    """mu far enough from 0 and from being orthogonal to the principal component for rounding not to matter."""
    mean = rows.mean(0)
    principal = torch.linalg.svd(rows - mean, full_matrices=False).Vh[0]
    along = (mean @ principal).abs()
    return bool(along > 0.1 * mean.norm() and along > 1e-2 * (1 + (rows - mean).norm() / math.sqrt(len(rows))))


def _real_rows(setup: Setup) -> Iterator[tuple[str, Tensor]]:
    if setup.data is not None:
        for step in setup.data.networks:
            rows = setup.data.live(step, 2, 400)
            yield f"{setup.data.name}, step {step}, N=400, n={rows.shape[1]}", rows


def _strict_without_the_condition() -> str:
    """mu orthogonal to the principal component, and yet kappa falls."""
    rows = torch.tensor([[3.0, 1.0], [-3.0, 1.0], [3.0, 3.0], [-3.0, 3.0]], dtype=torch.float64)
    return (
        "that condition is not necessary: rows (3,1), (-3,1), (3,3), (-3,3) have mu = (0,2) orthogonal to x_max = "
        f"(1,0), and kappa falls from {kappa(extended(rows)):.3f} to {kappa(centred(rows)):.3f}"
    )


def _without_full_column_rank() -> str:
    """The smallest counterexample: with N = 1 or n = 1 a rank-deficient [e, H] has condition number 1 on both sides."""
    rows = torch.tensor([[1.0, 2.0], [1.0, -2.0]], dtype=torch.float64)
    return (
        "without full column rank it is false: N = 2, n = 2, rows (1, 2) and (1, -2): kappa(H)^2 = "
        f"{kappa(extended(rows)) ** 2:.3f}, kappa(HU)^2 = {kappa(centred(rows)) ** 2:.3f}"
    )


def _wide_matrices(setup: Setup) -> Iterator[str]:
    """The paper's own shape, 60 x 101: random features, ReLU activations of random layers and of one in training."""
    generator, repeats = setup.generator("wide"), max(1, setup.trials // 3)
    ratios = []
    for _ in range(repeats):
        rows = 10 * torch.randn(60, 100, generator=generator, dtype=torch.float64)
        rows = rows + torch.randn(100, generator=generator, dtype=torch.float64)
        ratios.append(kappa(centred(rows)) / kappa(extended(rows)))
    yield _shares("Gaussian features of deviation 10 and means of about 1, 60 x 101", ratios)
    ratios = []
    for _ in range(repeats):
        x = torch.randn(60, 30, generator=generator, dtype=torch.float64)
        rows = (x @ torch.randn(30, 100, generator=generator, dtype=torch.float64) / 30**0.5).relu()
        ratios.append(kappa(centred(rows)) / kappa(extended(rows)))
    yield _shares("random ReLU layers of the paper's shape, 60 x 101 (no full column rank)", ratios)
    if setup.data is not None:
        for step in setup.data.networks:
            batches = setup.data.hidden(step, 2, 1200).split(60)
            ratios = [kappa(centred(rows)) / kappa(extended(rows)) for rows in batches]
            yield _shares(f"{setup.data.name}, step {step}, 60 x 101", ratios)


def _shares(where: str, ratios: list[float]) -> str:
    values = torch.tensor(ratios)
    broken = int((values > 1 + SLACK).sum())
    return (
        f"{where}: kappa(HU)/kappa(H) is {values.median():.3f} (median), at most {values.max():.3f}; above 1 in "
        f"{broken} of {len(values)}"
    )


@statement("lemma-a1", "columns of equal norm: kappa(AD) <= sqrt(n) min over diagonal D0 of kappa(AD0)")
def lemma_a1(setup: Setup) -> Finding:
    """van der Sluis: any matrix of full column rank, against the best scaling found."""
    bound, generator = Bound(SLACK), setup.generator("lemma-a1")
    hardest = dict[int, float]()
    for n in WIDTHS:
        rows = n + 2
        matrices = [random_rows(generator, rows, n) for _ in range(max(1, setup.trials // len(WIDTHS)))]
        if n > 1:
            matrices.append(hard_columns(generator, n + 2, n))
        best = best_scaling(torch.stack(matrices))
        for matrix, least in zip(matrices, best.tolist(), strict=True):
            bound.add(kappa(unit_columns(matrix)), scaling_factor(n) * least, f"{rows} x {n}")
        hardest[n] = kappa(unit_columns(matrices[-1])) / best[-1].item()
    for where, activations in _real_rows(setup):
        best = best_scaling(extended(activations).unsqueeze(0))
        columns = activations.shape[1] + 1
        bound.add(kappa(unit_columns(extended(activations))), scaling_factor(columns) * best.item(), where)
    return Finding(
        tried=f"{bound.count} matrices of 1 to {max(WIDTHS)} columns, best scaling found by Adam",
        worst=bound.worst,
        tightest=bound.tightest,
        verdict=bound.verdict,
        outside=(
            "two columns: equal norms are the best scaling; nearly parallel columns of which two are far more so reach "
            + ", ".join(f"{hardest[n]:.3f} of {math.sqrt(n):.3f} at n = {n}" for n in WIDTHS if n > 2)
            + " (the family tends to sqrt(n/2))",
        ),
    )
