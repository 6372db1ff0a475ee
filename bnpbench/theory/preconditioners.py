"""BNP's kin: what the whole matrix of the inputs leaves of the condition number, and what its diagonal is."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from bnpbench.bnp import BNP
from bnpbench.bnp.rewriter import Rewriter
from bnpbench.methods.bnp_full import BnpFull
from bnpbench.methods.foof import Foof
from bnpbench.methods.gradient import GradientPlugin
from bnpbench.theory.gain import orthogonal
from bnpbench.theory.hessian import extended
from bnpbench.theory.outcome import Equality, Finding, Setup, both, statement
from bnpbench.theory.scaling import kappa

Layer = nn.Linear | nn.Conv2d


def damped_kappa(largest: float, smallest: float, damping: float) -> float:
    """What (A + lambda I)^-1 leaves of the condition number of A: ``l1 (lr + lambda) / (lr (l1 + lambda))``."""
    return largest * (smallest + damping) / (smallest * (largest + damping))


def multiplier(rows: Tensor, method: GradientPlugin) -> Tensor:
    """What a step on these rows multiplies [G_b | G_w] by, found by a step on the identity as a gradient."""
    n = rows.shape[1]
    layer = nn.Linear(n, n + 1).double()
    rewriter = Rewriter(layer, method)
    layer(rows).sum().backward()
    eye = torch.eye(n + 1, dtype=torch.float64)
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    with torch.no_grad():
        layer.weight.grad.copy_(eye[:, 1:])
        layer.bias.grad.copy_(eye[:, 0])
    rewriter.precondition()
    found = torch.cat([layer.bias.grad.unsqueeze(1), layer.weight.grad], 1)
    rewriter.remove()
    return found


def left(rows: Tensor, method: GradientPlugin) -> float:
    """The condition number of M^(1/2) A M^(1/2), A = E[h^ h^^T]."""
    values, vectors = torch.linalg.eigh(multiplier(rows, method))
    return kappa(extended(rows) @ (vectors * values.sqrt())) ** 2


@statement("foof-kappa", "FOOF leaves kappa l1(lr+lambda)/(lr(l1+lambda)) on the inputs' side: 1 where lambda = 0")
def foof_kappa(setup: Setup) -> Finding:
    """One step through the public interface; N >= n + 1 rows of full rank, of any scale and mean."""
    whole, damped, generator = Equality(1e-8), Equality(1e-8), setup.generator("foof-kappa")
    for trial in range(setup.trials):
        n = int(torch.randint(1, 9, (), generator=generator))
        batch = n + 1 + int(torch.randint(0, 12, (), generator=generator))
        rows = torch.randn(batch, n, generator=generator, dtype=torch.float64)
        rows = rows * 10 ** (2 * torch.rand(n, generator=generator, dtype=torch.float64) - 1)
        rows = rows + torch.randn(n, generator=generator, dtype=torch.float64)
        singular = torch.linalg.svdvals(extended(rows)).square() / batch
        damping = float(10 ** (4 * torch.rand((), generator=generator, dtype=torch.float64) - 3)) if trial % 2 else 0.0
        expected = damped_kappa(singular[0].item(), singular[-1].item(), damping)
        found = left(rows, Foof.made(damping=damping, every=1))
        (damped if damping else whole).add_error(abs(found - expected) / expected, f"N={batch}, n={n}, {damping=:.2g}")
    return Finding(
        tried=f"{whole.count} layers without damping, {damped.count} with some",
        worst=max((whole, damped), key=lambda equality: equality.largest).worst,
        tightest=max(whole.tightest, damped.tightest),
        verdict=both(whole.verdict, damped.verdict) if damped.count else whole.verdict,
        outside=(_fewer_rows(setup),),
    )


def _fewer_rows(setup: Setup) -> str:
    """With fewer rows than columns lambda = 0 has no inverse, and damping decides what the others become."""
    rows = torch.randn(4, 8, generator=setup.generator("fewer rows"), dtype=torch.float64)
    undamped, damped = (multiplier(rows, Foof.made(damping=damping, every=1)) for damping in (0.0, 1e-2))
    finite = "no number" if undamped.isnan().any() else f"norm {undamped.norm():.3g}, of rounding alone"
    return (
        f"N = 4 rows of n = 8: without damping {finite}; with lambda = 0.01 directions that no row has are "
        f"multiplied by {torch.linalg.eigvalsh(damped)[-1]:.4g}"
    )


@statement("full-bnp", "where the inputs' covariance is diagonal, BNP with the whole covariance is BNP")
def full_bnp(setup: Setup) -> Finding:
    """Two steps of both on the same gradients; dense layers and convolutions, with and without a bias."""
    equal = Equality(1e-9)
    for layer, batches, where in _diagonal(setup):
        equal.add(_by_bnp(layer, batches), _by_full(layer, batches), where)
    return Finding(
        tried=f"{equal.count} layers, two steps each",
        worst=equal.worst,
        tightest=equal.tightest,
        verdict=equal.verdict,
        outside=(_correlated(setup),),
    )


def _by_bnp(layer: Layer, batches: list[Tensor]) -> Tensor:
    return after_steps(layer, BNP(layer, rho=0.9, fused=False), batches)


def _by_full(layer: Layer, batches: list[Tensor]) -> Tensor:
    return after_steps(layer, Rewriter(layer, BnpFull.made(rho=0.9, every=1)), batches)


def after_steps(layer: Layer, tracker: BNP | Rewriter, batches: list[Tensor]) -> Tensor:
    """The gradients after each step, as a vector."""
    found = []
    for batch in batches:
        layer.zero_grad()
        layer(batch).square().mean().backward()
        tracker.precondition()
        found += [parameter.grad.flatten() for parameter in layer.parameters() if parameter.grad is not None]
    tracker.remove()
    return torch.cat(found)


def _diagonal(setup: Setup) -> Iterator[tuple[Layer, list[Tensor], str]]:
    """Layers and batches whose features or channels vary independently of each other, to the last digit."""
    generator = setup.generator("full-bnp")
    for trial in range(setup.trials):
        n = int(torch.randint(1, 7, (), generator=generator))
        batch = int(torch.randint(2, 6, (), generator=generator))
        bias, dense = trial % 2 == 0, trial % 4 < 2
        layer: Layer = nn.Linear(n, 4, bias=bias) if dense else nn.Conv2d(n, 4, 3, padding=1, bias=bias)
        layer.double()
        count = batch + n if dense else 9 * batch
        batches = []
        for _ in range(2):
            scales = 10 ** (2 * torch.rand(n, generator=generator, dtype=torch.float64) - 1)
            rows = orthogonal(generator, count, n) * scales
            rows = rows + torch.randn(n, generator=generator, dtype=torch.float64)
            batches.append(rows if dense else rows.view(batch, 3, 3, n).permute(0, 3, 1, 2))
        kind = "dense" if dense else "convolution"
        yield layer, batches, f"{kind}, N={batch}, n={n}, {'with' if bias else 'without'} a bias"


def _correlated(setup: Setup) -> str:
    """Two features that are nearly the same: the diagonal does not see it."""
    generator = setup.generator("correlated")
    common = torch.randn(60, 1, generator=generator, dtype=torch.float64)
    rows = common + 0.1 * torch.randn(60, 2, generator=generator, dtype=torch.float64)
    layer: Layer = nn.Linear(2, 1).double()
    one, other = _by_bnp(layer, [rows]), _by_full(layer, [rows])
    return (
        f"correlated features (N = 60, n = 2, correlation {torch.corrcoef(rows.T)[0, 1]:.3f}): after one step the "
        f"gradients differ by {(one - other).norm() / one.norm():.2f} of their norm"
    )
