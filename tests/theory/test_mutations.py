"""Every check fails when its statement is broken on purpose: a wrong constant, scaling or exponent, one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bnpbench.bnp.rewriter import Rewriter
from bnpbench.methods.bnp_full import BnpFull
from bnpbench.theory import (
    ORDER,
    convergence,
    convolution,
    costs,
    equivalence,
    gain,
    hessian,
    natural,
    norms,
    preconditioners,
    scaling,
    verify,
)
from bnpbench.theory.outcome import STATEMENTS

TRIALS = 10


def _without_the_ones(rows: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(rows[:, :1]), rows], 1)


def _transposed_taps(h: Tensor, k: int) -> Tensor:
    columns = unfolded(h, k).reshape(-1, h.shape[1], k, k)
    return columns.transpose(2, 3).flatten(1)


def _mean_added(rows: Tensor) -> Tensor:
    p = preconditioner(rows)
    p[0, 1:] *= -1
    return p


def _wrong_sign_of_the_bias(h: Tensor, dy: Tensor, mean: Tensor, damped: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    weight, _ = lean_step(h, dy, mean, damped, scale)
    return weight, dy.sum(0) / scale + weight @ mean


def _full(**options: float) -> Callable[[Any, list[Tensor]], Tensor]:
    made = BnpFull.made(**({"rho": 0.9, "every": 1} | options))
    return lambda layer, batches: preconditioners.after_steps(layer, Rewriter(layer, made), batches)


unfolded, preconditioner, hessian_of = convolution.unfolded, hessian.preconditioner, hessian.hessian_of
lean_step, multiplier = costs.lean_step, preconditioners.multiplier
bn_flops, lean_bnp_flops, bnp_flops, merge, make_bnp, make_kfac = (
    costs.bn_flops,
    costs.lean_bnp_flops,
    costs.bnp_flops,
    equivalence.merge,
    equivalence.make_bnp,
    natural.make_kfac,
)

MUTANTS: dict[str, list[tuple[Any, str, Callable[..., Any] | float]]] = {
    "theorem-1": [
        (convergence, "rate", lambda a, low, high: max(abs(1 - 2 * a * low), abs(1 - a * high))),
        (convergence, "rate", lambda a, low, high: max(abs(1 - a * low), abs(1 - a * high)) ** 1.5),
        (convergence, "rate", lambda a, low, high: abs(1 - a * high)),
        (convergence, "optimal_rate", lambda kappa: (kappa - 1) / kappa),
        (convergence, "optimal_rate", lambda kappa: (math.sqrt(kappa) - 1) / (math.sqrt(kappa) + 1)),
        (convergence.Minimum, "tangent", lambda self: torch.eye(len(self.theta), 3, dtype=torch.float64)),
    ],
    "proposition-2": [
        (hessian, "diagonal_curvature", torch.diag),
        (hessian, "diagonal_curvature", lambda second: torch.diag(second.sign() * second.square()) / len(second)),
        (hessian, "hessian_of", lambda rows, s: hessian_of(_without_the_ones(rows[:, 1:]), s)),
        (hessian, "hessian_of", lambda rows, s: hessian_of(rows, s @ s)),
    ],
    "theorem-3": [
        (hessian, "normalized", lambda rows: hessian.extended((rows - rows.mean(0)) / rows.std(0))),
        (hessian, "normalized", lambda rows: hessian.extended((rows - rows.mean(0)) / rows.var(0, correction=0))),
        (hessian, "normalized", lambda rows: hessian.extended(rows / rows.std(0, correction=0))),
        (hessian, "preconditioner", _mean_added),
    ],
    "theorem-4": [
        (scaling, "centring_bound", lambda kappa: 0.99 * kappa),
        (scaling, "centring_bound", lambda kappa: kappa**0.99),
        (scaling, "scaling_factor", lambda columns: math.sqrt(columns) / 2),
        (scaling, "scaling_factor", lambda columns: columns**0.25),
        (scaling, "centred", lambda rows: hessian.extended(rows - 3 * rows.mean(0))),
        (scaling, "normalized", lambda rows: hessian.extended((rows - rows.mean(0)) / rows.var(0))),
    ],
    "lemma-a1": [
        (scaling, "scaling_factor", lambda columns: math.sqrt(columns) / 2),
        (scaling, "scaling_factor", lambda columns: columns**0.25),
        (scaling, "unit_columns", lambda matrix: matrix / matrix.norm(dim=-2, keepdim=True) ** 2),
    ],
    "proposition-5": [
        (norms, "dense_scale", lambda n, batch: 1.0),
        (norms, "dense_scale", lambda n, batch: max(math.sqrt(n / batch), 1.0)),
        (norms, "dense_scale", lambda n, batch: max(n / (4 * batch), 1.0)),
        (norms, "norm_bound", lambda batch: 2.0 * batch**0.4),
        (norms, "norm_bound", lambda batch: 1.5 * math.sqrt(batch)),
    ],
    "lemma-a2": [
        (norms, "seginer_sum", lambda rows, columns: rows),
        (norms, "seginer_sum", lambda rows, columns: columns),
        (norms, "seginer_sum", lambda rows, columns: (rows + columns) / 8),
        (norms, "seginer_sum", lambda rows, columns: (rows + columns) ** 0.5),
    ],
    "proposition-6": [
        (costs, "bnp_flops", lambda n, m, batch: bnp_flops(n, m, batch) - n * m),
        (costs, "bnp_flops", lambda n, m, batch: bnp_flops(n, m, batch) + n * batch),
        (costs, "bnp_flops", lambda n, m, batch: bnp_flops(n, m, batch) - n),
    ],
    "crossing": [
        (costs, "bn_is_cheaper", lambda batch, n_out: 24 * batch < 6 * n_out),
        (costs, "bn_is_cheaper", lambda batch, n_out: 28 * batch < 5 * n_out),
        (costs, "usual_bn_is_cheaper", lambda batch, n_out: 11 * batch > 6 * n_out),
        (costs, "bn_flops", lambda n, batch: 28 * n * batch),
    ],
    "lean-form": [
        (costs, "lean_bnp_flops", lambda n, m, batch: lean_bnp_flops(n, m, batch) - n * batch),
        (costs, "lean_bnp_flops", lambda n, m, batch: lean_bnp_flops(n, m, batch) + 2 * m * batch),
        (costs, "lean_step", _wrong_sign_of_the_bias),
    ],
    "proposition-7": [
        (equivalence, "merge", lambda weight, bias, mean, deviation: merge(weight, bias, mean, deviation**2)),
        (equivalence, "merge", lambda weight, bias, mean, deviation: merge(weight, bias, -mean, deviation)),
        (equivalence, "make_bnp", lambda network, **options: make_bnp(network, **({"eps2": 2e-3} | options))),
        (equivalence, "make_bnp", lambda network, **options: make_bnp(network, statistics="running", **options)),
        (equivalence, "make_bnp", lambda network, **options: make_bnp(network, scale=True, **options)),
    ],
    "lemma-8": [
        (convolution, "unfolded", _transposed_taps),
        (convolution, "unfolded", lambda h, k: unfolded(h, k).flip(1)),
        (convolution, "extended", _without_the_ones),
    ],
    "proposition-9": [
        (convolution, "block_curvature", lambda blocks: torch.block_diag(*blocks.square()) / len(blocks)),
        (convolution, "block_curvature", lambda blocks: torch.block_diag(*blocks)),
        (
            convolution,
            "block_curvature",
            lambda blocks: torch.block_diag(*(torch.diag(block.diag()) for block in blocks)) / len(blocks),
        ),
        (convolution, "unfolded", _transposed_taps),
    ],
    "proposition-10": [
        (convolution, "mean_bound", lambda k, r, s, top: (k - 1) * (0.4 / r + 0.4 / s - (k - 1) / (4 * r * s)) * top),
        (convolution, "mean_bound", lambda k, r, s, top: (k - 1) * (1 / (2 * r) + 1 / (2 * s) - k / (4 * r * s)) * top),
        (convolution, "mean_bound", lambda k, r, s, top: (k - 1) / (2 * r * s) * top),
    ],
    "proposition-11": [
        (gain, "product_bound", lambda kappa_rows, kappa_s: kappa_rows * kappa_s),
        (gain, "product_bound", lambda kappa_rows, kappa_s: kappa_rows**2 * math.sqrt(kappa_s)),
        (gain, "product_bound", lambda kappa_rows, kappa_s: 0.9 * kappa_rows**2 * kappa_s),
    ],
    "figure-8": [
        (gain, "gain_bound", lambda kappa_u, kappa_d: kappa_u * kappa_d),
        (gain, "gain_bound", lambda kappa_u, kappa_d: 0.9 * (kappa_u * kappa_d) ** 2),
        (gain, "gain_bound", lambda kappa_u, kappa_d: kappa_u**2 * kappa_d),
    ],
    "foof-kappa": [
        (
            preconditioners,
            "damped_kappa",
            lambda largest, smallest, damping: (largest + damping) / (smallest + damping),
        ),
        (preconditioners, "damped_kappa", lambda largest, smallest, damping: 1.0),
        (preconditioners, "multiplier", lambda rows, method: multiplier(rows, method) @ multiplier(rows, method)),
    ],
    "full-bnp": [
        (preconditioners, "_by_full", _full(rho=0.91)),
        (preconditioners, "_by_full", _full(eps1=1.1e-2)),
        (preconditioners, "_by_full", _full(every=2)),
        (preconditioners, "orthogonal", lambda generator, batch, n: torch.randn(batch, n, dtype=torch.float64)),
    ],
    "kfac-newton": [
        (natural, "half_squared_error", lambda output, target: (output - target).abs().pow(2.1).sum(1).mean()),
        (natural, "make_kfac", lambda: make_kfac().model_copy(update={"damping": 1e-6})),
        (natural, "make_kfac", lambda: make_kfac().model_copy(update={"fisher": "empirical"})),
        (natural.GaussianKfac, "objective", lambda self, output, number, draw: 2 * output[:, number].sum()),
        (natural.GaussianKfac, "objective", lambda self, output, number, draw: output[:, 0].sum()),
    ],
}

CASES = [
    pytest.param(name, *mutant, id=f"{name}-{number}-{mutant[1]}")
    for name, mutants in MUTANTS.items()
    for number, mutant in enumerate(mutants, 1)
]


@pytest.mark.parametrize("name", ORDER)
def test_every_statement_holds(name: str) -> None:
    (outcome,) = verify([name], trials=TRIALS)
    assert outcome.verdict == "holds", outcome.worst
    assert outcome.tightest is None or 0.3 < outcome.tightest <= 1.05


@pytest.mark.parametrize(("name", "module", "formula", "mutant"), CASES)
def test_a_broken_statement_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, module: Any, formula: str, mutant: Callable[..., Any]
) -> None:
    monkeypatch.setattr(module, formula, mutant)
    (outcome,) = verify([name], trials=TRIALS)
    assert outcome.verdict == "violated"


def test_every_statement_has_mutants() -> None:
    assert set(MUTANTS) == set(STATEMENTS)
