"""Where K-FAC is Newton's method: one dense layer under half the squared error."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from bnpbench.bnp.rewriter import Rewriter
from bnpbench.methods.kfac import Kfac
from bnpbench.theory.hessian import exact_hessian
from bnpbench.theory.outcome import Equality, Finding, Setup, statement


class GaussianKfac(Kfac):
    """K-FAC with the exact Fisher of labels that are normal around the output, with variance 1.

    Their -log p is half the squared error: b = J^T (f - y), and E[b b^T] = J^T J is a sum over the outputs.
    """

    def objective(self, output: Tensor, number: int, draw: Tensor) -> Tensor:
        return output[:, number].sum()


def half_squared_error(output: Tensor, target: Tensor) -> Tensor:
    """The mean over examples of half the squared distance."""
    return 0.5 * (output - target).square().sum(1).mean()


def make_kfac() -> GaussianKfac:
    """Without damping, of the batch's statistics alone."""
    return GaussianKfac.made(fisher="exact", damping=0.0, rho=0.0, every=1)


def kfac_step(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """What K-FAC makes of the gradients of a network of dense layers, in the order of its parameters."""
    rewriter = Rewriter(network, make_kfac(), process_group=False)
    network.zero_grad()
    output = network(x)
    rewriter.look_back(output)
    half_squared_error(output, y).backward()
    rewriter.precondition()
    rewriter.remove()
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


def newton_step(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The inverse of the Hessian of all parameters times the gradient."""
    shapes = {name: value.shape for name, value in network.named_parameters()}

    def loss(parameters: Tensor) -> Tensor:
        pieces = parameters.split([shape.numel() for shape in shapes.values()])
        own = {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
        return half_squared_error(torch.func.functional_call(network, own, (x,)), y)

    at = torch.cat([value.detach().flatten() for value in network.parameters()])
    gradient: Tensor = torch.func.grad(loss)(at)
    step: Tensor = torch.linalg.solve(exact_hessian(loss, at), gradient)
    return step


@statement("kfac-newton", "K-FAC (exact Fisher, no damping, lr 1) on one dense layer, squared error: Newton's step")
def kfac_newton(setup: Setup) -> Finding:
    """Not in the paper. The Fisher of such a layer is the Kronecker product I (x) A, and so is its Hessian."""
    equal, generator = Equality(1e-9), setup.generator("kfac-newton")
    for _ in range(setup.trials):
        n, n_out = (int(torch.randint(1, 9, (), generator=generator)) for _ in range(2))
        batch = int(torch.randint(2 * n + 2, 4 * n + 6, (), generator=generator))
        layer, x, y = _drawn(generator, (n, n_out), batch)
        equal.add(kfac_step(layer, x, y), newton_step(layer, x, y), f"N={batch}, n={n}, n'={n_out}")
    return Finding(
        tried=f"{equal.count} dense layers with bias, N > n, against the Hessian of torch.func",
        worst=equal.worst,
        tightest=equal.tightest,
        verdict=equal.verdict,
        outside=(_two_layers(setup), _few_examples(setup)),
    )


def _two_layers(setup: Setup) -> str:
    """The same for two layers, of which each is linear in itself."""
    network, x, y = _drawn(setup.generator("two layers"), (4, 4, 3), 40)
    kfac, newton = kfac_step(network, x, y), newton_step(network, x, y)
    left = []
    for step in (torch.zeros_like(newton), kfac):
        pieces = step.split([p.numel() for p in network.parameters()])
        moved = {
            name: value.detach() - piece.view(value.shape)
            for (name, value), piece in zip(network.named_parameters(), pieces, strict=True)
        }
        left.append(half_squared_error(torch.func.functional_call(network, moved, (x,)), y).item())
    return (
        f"two layers, 4-4-3, N = 40: the step is off by {((kfac - newton).norm() / newton.norm()).item():.2f} of "
        f"Newton's, and the loss goes from {left[0]:.2f} to {left[1]:.2f}: the layers step together, each as if the "
        "other stood"
    )


def _few_examples(setup: Setup) -> str:
    """A second moment of fewer rows than columns has no inverse."""
    step = kfac_step(*_drawn(setup.generator("few examples"), (4, 3), 3))
    found = "not a number" if step.isnan().any() else f"as large as {step.abs().max():.1e}"
    return f"N = 3, n = 4: the second moment of the inputs has no inverse, and without damping the step is {found}"


def _drawn(generator: torch.Generator, widths: tuple[int, ...], batch: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A network of dense layers without activations, and a batch of normal inputs and targets."""
    layers = [nn.Linear(*sizes).double() for sizes in pairwise(widths)]
    network = nn.Sequential(*layers)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    x, y = (torch.randn(batch, width, generator=generator, dtype=torch.float64) for width in (widths[0], widths[-1]))
    return network, x, y
