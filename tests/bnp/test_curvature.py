"""The matrix forms that preconditioners are held to, by what is known of them otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support import curvature as c
from tests.support import oracle


def dense(bias: bool = True) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5, bias=bias), nn.Tanh(), nn.Linear(5, 3, bias=bias)).double()


def convolutions(bias: bool = True) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, (3, 2), padding=(1, 0), bias=bias), nn.Tanh(),
        nn.Conv2d(4, 4, 2, stride=2, dilation=(1, 2), groups=2, padding=1, padding_mode="circular", bias=bias),
        nn.Tanh(), nn.Flatten(), nn.Linear(24, 3, bias=bias),
    ).double()  # fmt: skip


class Tokens(nn.Module):
    """Logits (N, C, L), a label a token."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).transpose(1, 2)


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    "dense": (dense, (6, 4), (6,)),
    "dense without bias": (lambda: dense(False), (6, 4), (6,)),
    "convolutions": (convolutions, (4, 2, 3, 6), (4,)),
    "convolutions without bias": (lambda: convolutions(False), (4, 2, 3, 6), (4,)),
    "1-d and 3-d": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.Unflatten(2, (2, 2, 1)), nn.Conv3d(4, 2, (1, 2, 1)), nn.Flatten(),
                              nn.Linear(4, 3)).double(),
        (4, 2, 6), (4,),
    ),
    "tokens": (Tokens, (3, 2, 4), (3, 2)),
}  # fmt: skip


def made(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    make, shape, labels = CASES[name]
    torch.manual_seed(3)
    return make(), torch.randn(shape, dtype=torch.float64), torch.randint(3, labels)


def gradients(model: nn.Module, x: Tensor, labels: Tensor, loss: c.Loss = F.cross_entropy) -> dict[str, list[Tensor]]:
    model.zero_grad()
    loss(model(x), labels).backward()
    return {
        name: c.matrices_of(module, module.weight.grad, None if module.bias is None else module.bias.grad)
        for name, module in model.named_modules()
        if isinstance(module, c.KINDS)
    }


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * expected.abs().max().item())


# --- rows and slopes ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_the_sum_over_rows_of_slope_times_row(name: str) -> None:
    model, x, labels = made(name)
    expected = gradients(model, x, labels)
    for layer, of_it in c.seen(model, x, labels).items():
        for g, matrix in enumerate(expected[layer]):
            close(of_it.slopes[0][g].T @ of_it.rows[g] / of_it.labels, matrix)
            if model.get_submodule(layer).bias is not None:
                close(of_it.mean_slope(g), matrix[:, -1])


def test_slopes_are_those_of_the_examples_own_gradients() -> None:
    """``torch.func``: a gradient an example."""
    model, x, labels = made("dense")
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], example: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, parameters, (example[None],)), label[None])

    each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(parameters, x, labels)
    for layer, of_it in c.seen(model, x, labels).items():
        close(of_it.slopes[0][0], each[f"{layer}.bias"])
        close(torch.einsum("ni,nj->nij", of_it.slopes[0][0], of_it.rows[0])[:, :, :-1], each[f"{layer}.weight"])
        close(of_it.moment(0), of_it.rows[0].T @ of_it.rows[0] / len(x))


@pytest.mark.parametrize("name", ["dense", "convolutions", "tokens"])
def test_the_exact_fisher_is_the_expectation_over_drawn_labels(name: str) -> None:
    """Over every way that the labels of three examples can fall, by its probability."""
    model, x, _ = made(name)
    x = x[:2]
    exact = c.seen(model, x, torch.zeros(CASES[name][2], dtype=torch.long)[:2], "exact")
    probability = model(x).detach().softmax(1).movedim(1, -1).reshape(-1, 3)
    total = {layer: [torch.zeros_like(of_it.slope_moment(g)) for g in range(len(of_it.rows))]
             for layer, of_it in exact.items()}  # fmt: skip
    for fall in itertools.product(range(3), repeat=len(probability)):
        share = torch.stack([row[k] for row, k in zip(probability, fall, strict=True)]).prod()
        drawn = c.seen(model, x, torch.tensor(fall).view(-1, *CASES[name][2][1:]), "sampled")
        for layer, of_it in drawn.items():
            for g, sum_ in enumerate(total[layer]):
                sum_ += share * of_it.slope_moment(g)
    for layer, of_it in exact.items():
        for g, sum_ in enumerate(total[layer]):
            close(sum_, of_it.slope_moment(g))


def test_the_exact_fisher_of_squared_error_takes_every_output() -> None:
    model, x, _ = made("dense")
    exact = c.seen(model, x, torch.randn(6, 3).double(), "exact", c.half_squared_error)
    close(exact["2"].slope_moment(0), torch.eye(3).double())
    jacobian = torch.func.jacrev(lambda h: model[1:](h))(model[0](x).detach())  # (N, 3, N, 5)
    expected = torch.einsum("ncnj,ncnk->jk", jacobian, jacobian) / 6
    close(exact["0"].slope_moment(0), expected)


# --- K-FAC -------------------------------------------------------------------------------------


def hessian_of(model: nn.Module, x: Tensor, labels: Tensor, loss: c.Loss) -> tuple[Tensor, list[str]]:
    """Of all parameters in the order of :func:`c.matrices_of`, layer after layer."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, c.KINDS)}
    values = [c.matrices_of(module, module.weight, module.bias) for module in layers.values()]
    flat = torch.cat([matrix.flatten() for matrices in values for matrix in matrices])

    def value(theta: Tensor) -> Tensor:
        own, place = {}, 0
        for name, module in layers.items():
            columns = module.weight[0].numel() + (module.bias is not None)
            matrix = theta[place : place + len(module.weight) * columns].view(-1, columns)
            place += matrix.numel()
            prefix = f"{name}." if name else ""
            own[f"{prefix}weight"] = matrix[:, : module.weight[0].numel()].reshape(module.weight.shape)
            if module.bias is not None:
                own[f"{prefix}bias"] = matrix[:, -1]
        return loss(torch.func.functional_call(model, own, (x,)), labels)

    return torch.autograd.functional.hessian(value, flat), list(layers)


def test_one_dense_layer_under_half_the_squared_error_is_newtons_step() -> None:
    torch.manual_seed(0)
    layer, x, y = nn.Linear(4, 3).double(), torch.randn(9, 4).double(), torch.randn(9, 3).double()
    (G,) = gradients(layer, x, y, c.half_squared_error)[""]
    of_it = c.seen(layer, x, y, "exact", c.half_squared_error)[""]
    step = c.kfac(G, of_it.moment(0), of_it.slope_moment(0), 0.0)
    hessian, _ = hessian_of(layer, x, y, c.half_squared_error)
    close(step, torch.linalg.solve(hessian, G.flatten()).view_as(G), 1e-11)
    with torch.no_grad():
        layer.weight -= step[:, :-1]
        layer.bias -= step[:, -1]
    (G,) = gradients(layer, x, y, c.half_squared_error)[""]
    assert G.abs().max() < 1e-13


def test_two_dense_layers_are_not() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).double()
    x, y = torch.randn(9, 4).double(), torch.randn(9, 2).double()
    G = gradients(model, x, y, c.half_squared_error)
    exact = c.seen(model, x, y, "exact", c.half_squared_error)
    steps = [c.kfac(G[k][0], exact[k].moment(0), exact[k].slope_moment(0), 0.0).flatten() for k in exact if k == "1"]
    hessian, _ = hessian_of(model, x, y, c.half_squared_error)
    newton = torch.linalg.solve(hessian, torch.cat([G[k][0].flatten() for k in exact]))[15:]
    assert (steps[0] - newton).norm() > 0.1 * newton.norm()


def test_factored_damping_does_not_depend_on_how_the_product_is_split() -> None:
    """1602.01407 sums over positions where the mean over rows is taken here, and divides the other factor by them."""
    model, x, labels = made("convolutions")
    G = gradients(model, x, labels)["0"][0]
    of_it = c.seen(model, x, labels, "exact")["0"]
    positions = len(of_it.rows[0]) / len(x)
    A, B = of_it.moment(0), of_it.slope_moment(0)
    close(c.kfac(G, A * positions, B / positions, 0.3), c.kfac(G, A, B, 0.3), 1e-11)


def test_without_damping_the_product_is_undone() -> None:
    torch.manual_seed(0)
    A, B = (torch.randn(n, n + 3).double() for n in (4, 3))
    A, B, G = A @ A.T, B @ B.T, torch.randn(3, 4).double()
    close(B @ c.kfac(G, A, B, 0.0) @ A, G, 1e-10)
    close(torch.linalg.inv(B) @ G @ torch.linalg.inv(A), c.kfac(G, A, B, 0.0), 1e-10)


# --- the inputs' side --------------------------------------------------------------------------


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_foof_leaves_the_condition_number_that_its_damping_leaves(damping: float) -> None:
    """The inputs' factor of the Hessian is A; with as many rows as columns it is whitened."""
    torch.manual_seed(0)
    rows = torch.cat([torch.randn(7, 4).double() * torch.tensor([5.0, 1, 0.2, 0.1]), torch.ones(7, 1)], 1)
    A = rows.T @ rows / 7
    moved = c.foof(A, A, damping)  # A (A + l I)^-1
    eigenvalues = torch.linalg.eigvalsh(A)
    found = torch.linalg.eigvals(moved).real
    first, last = eigenvalues[-1], eigenvalues[0]
    expected = first * (last + damping) / (last * (first + damping))
    close(found.max() / found.min(), expected, 1e-10)
    assert damping or abs(found.max() / found.min() - 1) < 1e-10


def test_foof_under_squared_error_is_kfac_of_the_last_layer() -> None:
    model, x, _ = made("dense")
    y = torch.randn(6, 3).double()
    G = gradients(model, x, y, c.half_squared_error)["2"][0]
    of_it = c.seen(model, x, y, "exact", c.half_squared_error)["2"]
    close(c.kfac(G, of_it.moment(0), of_it.slope_moment(0), 0.0), c.foof(G, of_it.moment(0), 0.0), 1e-10)


def test_rank_one_forms_are_shermans_and_morrisons() -> None:
    torch.manual_seed(0)
    G, a, b, damping = torch.randn(3, 5).double(), torch.randn(5).double(), torch.randn(3).double(), 0.03
    reach = (b @ G @ a) / (damping + a.dot(a) * b.dot(b))
    close(c.eva(G, a, b, damping), (G - reach * torch.outer(b, a)) / damping, 1e-10)
    close(c.eva_f(G, a, damping), (G - torch.outer(G @ a, a) / (damping + a.dot(a))) / damping, 1e-10)
    close(c.mac(G, a, damping), damping * c.eva_f(G, a, damping), 1e-10)


@pytest.mark.parametrize("taps", [1, 6])
@pytest.mark.parametrize("bias", [True, False])
def test_bnp_full_of_a_diagonal_covariance_is_bnp(bias: bool, taps: int) -> None:
    torch.manual_seed(0)
    weight, mean, variance = torch.randn(3, 4, taps).double(), torch.randn(4).double(), torch.rand(4).double()
    bias_grad = torch.randn(3).double() if bias else None
    G = torch.cat([weight.flatten(1), *([bias_grad[:, None]] if bias_grad is not None else [])], 1)
    expected_weight, expected_bias, _ = oracle.precondition(weight, bias_grad, mean, variance, 0.01, 1e-4, 1.7)
    found = c.bnp_full(G, mean, variance.diag(), 0.01, 1e-4, 1.7, bias)
    close(found[:, : 4 * taps].view_as(weight), expected_weight, 1e-10)
    if expected_bias is not None:
        close(found[:, -1], expected_bias, 1e-10)


def test_bnp_full_whitens_what_bnp_only_scales() -> None:
    torch.manual_seed(0)
    rows = torch.randn(50, 4).double() @ torch.randn(4, 4).double() + 3
    mean = rows.mean(0)
    covariance = (rows - mean).T @ (rows - mean) / 50
    A = c.rows_of(nn.Linear(4, 2), rows)[0]
    A = A.T @ A / 50
    close(c.bnp_full(A, mean, covariance, 0.0, 0.0, 1.0, True), torch.eye(5).double(), 1e-9)


def test_running_values() -> None:
    history = [torch.tensor(float(k), dtype=torch.float64) for k in (5, -1, 2)]
    first = zero = warm = None
    for k, s in enumerate(history, 1):
        first = s if first is None else 0.9 * first + 0.1 * s
        zero = 0.1 * s if zero is None else 0.9 * zero + 0.1 * s
        warm = s if warm is None else min(1 - 1 / k, 0.6) * warm + (1 - min(1 - 1 / k, 0.6)) * s
    close(c.from_the_first(history, 0.9), first)
    close(c.from_zero(history, 0.9), zero / (1 - 0.9**3))
    close(c.warmed_up(history, 0.6), warm)
    close(c.warmed_up(history, 0.95), torch.tensor(2.0).double())  # the mean, at first


# --- a second opinion --------------------------------------------------------------------------


@c.NEEDS_CURVLINOPS
@pytest.mark.filterwarnings("ignore")  # that names of torch, which it uses, are old
@pytest.mark.parametrize("name", ["dense", "dense without bias", "convolutions", "tokens"])
@pytest.mark.parametrize("fisher", ["empirical", "exact", "forward-only"])
def test_curvlinops_finds_the_same_factors(name: str, fisher: str) -> None:
    from curvlinops import KFACLinearOperator

    model, x, labels = made(name)
    if name == "convolutions":  # it knows no padding but zeros, and takes the mean over groups
        model[2] = nn.Conv2d(4, 4, 2, stride=2, dilation=(1, 2), padding=1).double()
    loss = nn.CrossEntropyLoss()
    if name == "tokens":
        model, x, loss = model.layers, x.flatten(0, 1), nn.CrossEntropyLoss()
        labels = labels.flatten()
    parameters: Any = [p for p in model.parameters() if p.requires_grad]
    theirs = KFACLinearOperator(
        model, loss, parameters, [(x, labels)], fisher_type={"exact": "type-2"}.get(fisher, fisher),
        separate_weight_and_bias=False, check_deterministic=False,
    )  # fmt: skip
    theirs.compute_kronecker_factors()
    ours = c.seen(model, x, labels, "exact" if fisher == "exact" else "empirical")
    for layer, of_it in ours.items():
        close(of_it.moment(0), theirs._input_covariances[layer])
        expected = theirs._gradient_covariances[layer]
        if fisher == "forward-only":
            close(torch.eye(len(expected)).double(), expected)  # FOOF
        else:
            close(of_it.slope_moment(0), expected)
