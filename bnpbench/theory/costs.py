"""Proposition 6, the crossing of BN and BNP, and the lean form, by counting."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from bnpbench.bnp.algorithms import batch_statistics, damped_variance, dense_scale, precondition_dense
from bnpbench.bnp.costs import LayerShape, bn_flops, bnp_flops, lean_bnp_flops, predicted, usual_bn_flops
from bnpbench.measure.flops import FlopCount, count_plain_bn, count_plain_bnp
from bnpbench.theory.outcome import Equality, Finding, Setup, both, statement

NETWORK = ((3072, 100), (100, 100), (100, 10))  # section 5.1
LARGEST = 3000


def bn_is_cheaper(batch: int, n_out: int) -> bool:
    """The paper, ignoring first-order terms: 28N < 6n'."""
    return 28 * batch < 6 * n_out


def usual_bn_is_cheaper(batch: int, n_out: int) -> bool:
    """With BN's usual backward: 11N < 6n'."""
    return 11 * batch < 6 * n_out


def _sizes(generator: torch.Generator) -> tuple[int, int, int]:
    """n, n', N, from 1 up, on a logarithmic scale."""
    exponents = torch.rand(3, generator=generator, dtype=torch.float64)
    n, n_out, batch = (int(LARGEST**exponent) for exponent in exponents.tolist())
    return n, n_out, batch


def _dense(n: int, n_out: int, batch: int) -> LayerShape:
    return LayerShape("", n, n_out, 1, 1, batch, batch, 1, True)


@statement("proposition-6", "one BNP step on a dense layer takes 4nN + 6nn' + 2n' + 8n operations")
def proposition_6(setup: Setup) -> Finding:
    """The plain Algorithm 2, run on meta tensors and counted, to the last operation."""
    equal, generator = Equality(0.0), setup.generator("proposition-6")
    for _ in range(setup.trials):
        n, n_out, batch = _sizes(generator)
        counted = count_plain_bnp(_dense(n, n_out, batch))
        formula = bnp_flops(n, n_out, batch)
        equal.add_error(abs(counted - formula) / counted, f"n={n}, n'={n_out}, N={batch}: counted {counted}")
    totals = []
    for batch in (16, 256, 512):
        counts = [count_plain_bnp(_dense(n, n_out, batch)) for n, n_out in NETWORK]
        products = sum(2 * n * n_out for n, n_out in NETWORK) * 2 * batch + sum(
            2 * n * n_out * batch for n, n_out in NETWORK[1:]
        )
        totals.append(f"N={batch}: {sum(counts):,} ({sum(counts) / products:.1%} of its matrix products)")
    conv = LayerShape("", 16, 32, 9, 1, 64 * 64, 64, 64, True)
    return Finding(
        tried=f"{equal.count} layers, n, n', N up to {LARGEST}, counted on meta tensors",
        worst=equal.worst,
        tightest=equal.tightest,
        verdict=equal.verdict,
        outside=(
            f"network 3072-100-100-10, counted: {'; '.join(totals)}",
            f"Algorithm 3, of which the paper gives no count: 16 -> 32 channels, 3 x 3, N=64, 8 x 8: counted "
            f"{count_plain_bnp(conv):,}, by 4cNrs + 6ck^2c' + 2c' + 8c {predicted(conv):,}",
        ),
    )


@statement("crossing", "BN is cheaper than BNP if 28N < 6n' (first-order terms ignored), else dearer")
def crossing(setup: Setup) -> Finding:
    """BN's 32nN + 4n against Proposition 6, exactly: the difference is n(28N - 6n' - 4) - 2n'."""
    generator, wrong, tried, ignored = setup.generator("crossing"), 0, 0, 0
    worst = "all agree"
    for _ in range(20 * setup.trials):
        n, n_out, batch = _sizes(generator)
        for cost, rule, slope in ((bn_flops, bn_is_cheaper, 28), (usual_bn_flops, usual_bn_is_cheaper, 11)):
            if abs(slope * batch - 6 * n_out) <= 4 + Fraction(2 * n_out, n):  # within the first-order terms
                ignored += 1
                continue
            tried += 1
            if (cost(n, batch) < bnp_flops(n, n_out, batch)) != rule(batch, n_out):
                wrong += 1
                worst = f"n={n}, n'={n_out}, N={batch}, BN {cost(n, batch)}, BNP {bnp_flops(n, n_out, batch)}"
    counted_bn = count_plain_bn(100, 256)
    hidden = sum(bnp_flops(n, n_out, 256) for n, n_out in NETWORK[1:])
    whole = sum(bnp_flops(n, n_out, 256) for n, n_out in NETWORK)
    return Finding(
        tried=f"{tried} layers and two counts of BN (28N = 6n', 11N = 6n'), {ignored} within the first-order terms",
        worst=worst,
        tightest=None,
        verdict="violated" if wrong else "holds",
        outside=(
            f"n = n' = 100: BN as the paper counts it is cheaper up to N = {_last_cheaper(bn_flops)}, with the usual "
            f"backward up to N = {_last_cheaper(usual_bn_flops)}; a plain BN through autograd, counted, up to N = "
            f"{_last_cheaper(count_plain_bn)} ({counted_bn:,} operations at N = 256, predicted {bn_flops(100, 256):,})",
            f"the rule is for one layer with BN on its input: in 3072-100-100-10 at N = 256 BNP costs {hidden:,} on "
            f"the two layers that BN feeds and {whole:,} on all three, BN {2 * bn_flops(100, 256):,}",
        ),
    )


def _last_cheaper(cost: Callable[[int, int], int]) -> int:
    """The largest N at which BN of this cost is cheaper, for n = n' = 100."""
    return bisect(range(1, 200), 0, key=lambda batch: cost(100, batch) >= bnp_flops(100, 100, batch))


@statement("lean-form", "centring the activations instead: 8nN + 2n'N + 9n + 2n' operations, same result")
def lean_form(setup: Setup) -> Finding:
    """Not in the paper. Counted on meta tensors, its result compared with Algorithm 2."""
    counts, results, generator = Equality(0.0), Equality(1e-9), setup.generator("lean-form")
    for _ in range(setup.trials):
        n, n_out, batch = _sizes(generator)
        counted = _count_lean(n, n_out, batch)
        error = abs(counted - lean_bnp_flops(n, n_out, batch)) / counted
        counts.add_error(error, f"n={n}, n'={n_out}, N={batch}: counted {counted}")
        small = [1 + size % 12 for size in (n, n_out, batch + 1)]
        _compare_lean(results, generator, *small)
    last = max(batch for batch in range(1, 400) if lean_bnp_flops(3072, 100, batch) < bnp_flops(3072, 100, batch))
    return Finding(
        tried=f"{counts.count} layers counted, {results.count} results compared with Algorithm 2",
        worst=counts.worst if counts.verdict == "violated" else results.worst,
        tightest=results.tightest,
        verdict=both(counts.verdict, results.verdict),
        outside=(
            f"n = 3072, n' = 100: {lean_bnp_flops(3072, 100, 1):,} against {bnp_flops(3072, 100, 1):,} at N = 1; fewer "
            f"up to N = {last}",
        ),
    )


def lean_step(h: Tensor, dy: Tensor, mean: Tensor, damped: Tensor, scale: float | Tensor) -> tuple[Tensor, Tensor]:
    """The lean form's gradients from activations (N, n) and output gradients (N, n')."""
    z = (h - mean) / (scale * damped)
    return dy.T @ z, dy.sum(0) / scale - dy.T.mv(z.mv(mean))


def _count_lean(n: int, n_out: int, batch: int) -> int:
    """What it costs beyond the products that a backward pass makes anyway: dY^T Z takes the place of dY^T H."""
    with torch.device("meta"), FlopCount() as flops:
        h, dy, g_b = torch.empty(batch, n), torch.empty(batch, n_out), torch.empty(n_out)
        mean, variance = torch.zeros(n), torch.ones(n)
        batch_mean = h.mean(0)
        batch_variance = (h - batch_mean).pow(2).mean(0)
        mean = 0.99 * mean + 0.01 * batch_mean
        variance = 0.99 * variance + 0.01 * batch_variance
        damped = variance + 1e-2 * variance.max() + 1e-4
        z = (h - mean) / (2.0 * damped)
        _ = g_b * 0.5 - dy.T.mv(z.mv(mean))
    return flops.total


def _compare_lean(results: Equality, generator: torch.Generator, n: int, n_out: int, batch: int) -> None:
    h = torch.randn(batch, n, generator=generator, dtype=torch.float64) + 1
    dy = torch.randn(batch, n_out, generator=generator, dtype=torch.float64)
    mean, variance = batch_statistics(h)
    damped, scale = damped_variance(variance), dense_scale(n, batch)
    plain_w, plain_b = precondition_dense(dy.T @ h, dy.sum(0), mean, damped, scale)
    assert plain_b is not None
    lean_w, lean_b = lean_step(h, dy, mean, damped, scale)
    where = f"n={n}, n'={n_out}, N={batch}"
    results.add(torch.cat([lean_w.flatten(), lean_b]), torch.cat([plain_w.flatten(), plain_b]), where)
