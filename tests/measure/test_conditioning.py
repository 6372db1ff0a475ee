"""Condition numbers of one neuron's Hessian, against torch.func.hessian and the matrix form of the preconditioner."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.bnp import BNP
from bnpbench.bnp.costs import tracked_shapes
from bnpbench.bnp.rewriter import Rewriter
from bnpbench.measure.conditioning import Conditioning, Probe, conditioning, numerical_rank
from bnpbench.measure.curvature import look
from bnpbench.methods.foof import Foof
from bnpbench.methods.gradient import GradientPlugin
from bnpbench.methods.mac import Mac
from bnpbench.methods.preconditioning import Training
from bnpbench.results.schema import STEPS
from tests.support.kinds import made
from tests.support.neurons import CASES, case_of, dense, loss_of

# torch.func.hessian scripts its forward-mode rules when first used
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def preconditioner_root(mean: Tensor, deviation: Tensor, bias: bool) -> Tensor:
    """P in matrix form; without a bias any P with P P^T = (diag(sigma^2) + mu mu^T)^-1."""
    n = len(mean)
    if not bias:
        return torch.linalg.cholesky(torch.linalg.inv(torch.diag(deviation**2) + torch.outer(mean, mean)))
    u, d = torch.eye(n + 1, dtype=mean.dtype), torch.eye(n + 1, dtype=mean.dtype)
    u[0, 1:], d[1:, 1:] = -mean, torch.diag(1 / deviation)
    return u @ d


@pytest.mark.parametrize("case", CASES)
def test_condition_numbers_are_those_of_the_hessian(case: str) -> None:
    model, x, layer, neuron = case_of(case)
    loss, start = loss_of(model, x, layer, neuron)
    hessian = torch.func.hessian(loss)(start)
    module, view = model.get_submodule(layer), look(model, x, layer, neuron)
    inputs = view.inputs if isinstance(module, nn.Linear) else view.inputs.movedim(1, -1)
    inputs = inputs.flatten(0, -2)
    taps = view.rows.shape[-1] // inputs.shape[-1]
    mean, variance = inputs.mean(0), inputs.var(0, correction=0)
    damped = variance + 1e-2 * variance.max() + 1e-4
    live = variance > 0  # a unit in front that never fires has a column of zeros
    keep = live.repeat_interleave(taps)
    keep = keep if module.bias is None else torch.cat([torch.tensor([True]), keep])
    hessian, mean = hessian[keep][:, keep], mean[live]
    of_d = (variance[live], damped)
    for found, var, d in zip(
        conditioning(model, x, layer=layer, neuron=neuron), (variance[live], damped[live]), of_d, strict=True
    ):
        p = preconditioner_root(
            mean.repeat_interleave(taps), var.sqrt().repeat_interleave(taps), module.bias is not None
        )
        for kappa, matrix in ((found.kappa_hessian, hessian), (found.kappa_preconditioned, p.T @ hessian @ p)):
            values = torch.linalg.eigvalsh(matrix).flip(0)
            assert values[found.rank :].abs().max().item() < 1e-12 * values[0] if found.rank < len(values) else True
            assert kappa == pytest.approx((values[0] / values[found.rank - 1]).item(), rel=1e-5)
        scales = d.sqrt() if module.bias is None else torch.cat([torch.ones(1, dtype=d.dtype), d.sqrt()])
        assert found.kappa_d == pytest.approx((scales.max() / scales.min()).item(), rel=1e-12)
        assert found.kappa_gain == pytest.approx(found.kappa_hessian / found.kappa_preconditioned)
        assert found.gain_over_kappa_d_squared == pytest.approx(found.kappa_gain / found.kappa_d**2)


@pytest.mark.parametrize(
    "case", ["hidden dense layer", "without bias", "grouped, strided, dilated, circular convolution"]
)
def test_running_statistics_are_those_of_the_next_step(case: str) -> None:
    model, x, layer, neuron = case_of(case)
    bnp = BNP(model, rho=0.7, eps1=0.03, eps2=1e-3)
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    for batch in (x + 1, 2 * x):
        model.zero_grad()
        F.cross_entropy(model(batch), torch.arange(len(x)) % 3).backward()
        bnp.precondition()
    found = {one.preconditioner: one for one in conditioning(model, x, layer=layer, neuron=neuron, bnp=bnp)}
    loss, start = loss_of(model, x, layer, neuron)
    hessian = torch.func.hessian(loss)(start)
    F.cross_entropy(model(x), torch.arange(len(x)) % 3).backward()
    bnp.precondition()
    state, view = bnp.state_dict(), look(model, x, layer, neuron)
    groups = getattr(model.get_submodule(layer), "groups", 1)
    mean = state[f"{layer}.running_mean"].chunk(groups)[view.group]
    variance = state[f"{layer}.running_var"].chunk(groups)[view.group]
    variance = variance + 0.03 * variance.max() + 1e-3
    taps = view.rows.shape[-1] // len(mean)
    p = preconditioner_root(mean.repeat_interleave(taps), variance.sqrt().repeat_interleave(taps), view.has_bias)
    values = torch.linalg.eigvalsh(p.T @ hessian @ p).flip(0)
    running = found["running_damped"]
    assert running.kappa_preconditioned == pytest.approx((values[0] / values[running.rank - 1]).item(), rel=1e-6)
    batch = look(model, x, layer, neuron).inputs.movedim(1, -1) if groups > 1 else view.inputs
    assert found["batch_damped"].kappa_d == pytest.approx(_kappa_damped(batch.flatten(0, -2), view.has_bias), rel=1e-9)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("method", [Foof, Mac])
@pytest.mark.parametrize(
    "case", ["hidden dense layer", "without bias", "grouped, strided, dilated, circular convolution"]
)
def test_another_preconditioner_is_taken_as_its_next_step_will_be(
    case: str, method: type[GradientPlugin], every: int
) -> None:
    model, x, layer, neuron = case_of(case)
    rewriter = Rewriter(model, method.made(rho=0.7, damping=0.1, every=every))
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()

    def step(batch: Tensor) -> None:
        model.zero_grad()
        F.cross_entropy(model(batch), torch.arange(len(x)) % 3).backward()
        rewriter.precondition()

    for batch in (x + 1, 2 * x):
        step(batch)
    before = rewriter.state_dict()
    rows = conditioning(model, x, layer=layer, neuron=neuron, bnp=rewriter)
    found = {one.preconditioner: one for one in rows}["running_damped"]
    assert all(value.equal(before[key]) for key, value in rewriter.state_dict().items())
    loss, start = loss_of(model, x, layer, neuron)
    hessian = torch.func.hessian(loss)(start)
    group = look(model, x, layer, neuron).group
    step(x)
    state = {key.removeprefix(f"{layer}."): value for key, value in rewriter.state_dict().items()}
    if method is Foof:
        matrix = state["inverse"][group]
    else:
        vector = state["vector"][group]
        matrix = torch.eye(len(vector), dtype=x.dtype) - torch.outer(vector, vector) / (0.1 + vector.dot(vector))
    root = torch.linalg.cholesky(matrix)
    values = torch.linalg.eigvalsh(root.T @ hessian @ root).flip(0)
    assert found.kappa_preconditioned == pytest.approx((values[0] / values[found.rank - 1]).item(), rel=1e-5)
    assert found.kappa_d is None


def _kappa_damped(rows: Tensor, bias: bool) -> float:
    variance = rows.var(0, correction=0)
    scales = (variance + 0.03 * variance.max() + 1e-3).sqrt()
    scales = torch.cat([scales, scales.new_ones(1)]) if bias else scales
    return (scales.max() / scales.min()).item()


def test_weights_that_underflow_keep_their_condition_number() -> None:
    """Two examples with p(1-p) of about exp(-1600) and exp(-1602): far below the smallest float64."""
    model = nn.Sequential(nn.Linear(1, 2)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.0], [1.0]]))
        model[0].bias.copy_(torch.tensor([0.0, 1600.0]))
    x = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    found = conditioning(model, x, layer="0", neuron=0)[0]
    s = math.exp(-2.0)
    # A = diag(1, e^-1) [[1, 0], [1, 2]]: trace and determinant of A^T A give both eigenvalues
    trace, determinant = 1 + s + 4 * s, 4 * s
    root = math.sqrt(trace**2 - 4 * determinant)
    assert found.kappa_hessian == pytest.approx((trace + root) / (trace - root), rel=1e-12)
    assert (found.rank, found.live_rows) == (2, 2)


def test_dead_features_and_sure_examples() -> None:
    """A constant feature has no column in the preconditioned rows, an example without doubt no row in A."""
    model = nn.Sequential(nn.Linear(4, 2)).double()
    x = torch.randn(12, 4, dtype=torch.float64)
    x[:, 1] = 3.0
    x[:, 2] *= 1e-14
    x[0] = torch.tensor([1e4, 3.0, 0.0, 0.0])
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]]))
    found = conditioning(model, x, layer="0", neuron=0)
    assert [one.live_features for one in found] == [2, 2]
    assert {one.live_rows for one in found} == {11}
    assert found[0].rank == 3
    kept = x[:, [0, 3]]
    assert found[0].kappa_d == pytest.approx(
        max(kept.std(0, correction=0).tolist()) / min(1, *kept.std(0, correction=0).tolist())
    )


def test_no_condition_number_without_a_gap() -> None:
    """A feature that is another one plus 1e-13: its singular value lies just above the noise."""
    model = nn.Sequential(nn.Linear(2, 2)).double()
    x = torch.randn(20, 1, dtype=torch.float64)
    x = torch.cat([x, x + 3e-14 * torch.randn(20, 1, dtype=torch.float64)], 1)
    found = conditioning(model, x, layer="0")[0]
    assert found.rank == 3
    assert found.gap < 100
    assert found.kappa_hessian is None
    assert found.kappa_gain is None


def test_a_neuron_that_never_fires_has_no_hessian() -> None:
    model = dense()
    with torch.no_grad():
        model[0].bias[2] = -100.0
    found = conditioning(model, torch.randn(9, 4), layer="0", neuron=2)[0]
    assert (found.rank, found.live_rows, found.kappa_hessian, found.kappa_gain) == (0, 0, None, None)


def test_a_diverged_network_has_condition_numbers_that_are_not_numbers() -> None:
    model = dense()
    with torch.no_grad():
        model[2].weight[0, 0] = math.inf
    found = conditioning(model, torch.randn(9, 4), layer="4")[0]
    assert math.isnan(found.kappa_hessian)
    assert math.isnan(found.kappa_gain)


def test_more_weights_than_rows_has_the_rank_of_the_rows() -> None:
    model = nn.Sequential(nn.Linear(30, 3))
    found = conditioning(model, torch.randn(6, 30), layer="0")[0]
    assert (found.rank, found.live_rows, found.live_features) == (6, 6, 30)
    assert found.gap > 1e10


def test_a_single_row_takes_its_distance_from_the_running_mean() -> None:
    model = nn.Sequential(nn.Linear(3, 2)).double()
    bnp = BNP(model)
    x = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    found = {one.preconditioner: one for one in conditioning(model, x, layer="0", bnp=bnp)}
    assert found["batch"].kappa_d == pytest.approx(4.0)  # sigma = |h - 0| = 1, 2, 4
    assert found["batch"].kappa_hessian == pytest.approx(1.0)
    assert found["running_damped"].rank == 1


def test_nothing_is_changed() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 3)).train()
    bnp, x = BNP(model), torch.randn(8, 4)
    F.cross_entropy(model(x), torch.arange(8) % 3).backward()
    model_before, bnp_before = deepcopy(model.state_dict()), bnp.state_dict()
    grads, random = [p.grad.clone() for p in model.parameters()], torch.get_rng_state()
    hooks = [len(module._forward_hooks) for module in model.modules()]
    assert len(conditioning(model, x, layer="3", bnp=bnp)) == 3
    assert all(torch.equal(a, b) for a, b in zip(model_before.values(), model.state_dict().values(), strict=True))
    assert all(torch.equal(bnp_before[name], value) for name, value in bnp.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads, strict=True))
    assert all(p.requires_grad for p in model.parameters())
    assert torch.equal(random, torch.get_rng_state())
    assert hooks == [len(module._forward_hooks) for module in model.modules()]
    bnp.precondition()  # the rows of the step before are still there


def test_a_probe_gives_rows_of_the_steps_table() -> None:
    model, x = dense(), torch.randn(9, 4)
    probe = Probe(layer="2", neuron=1, every=3, epochs=2)
    assert [step for step in range(1, 9) if probe.due(2, step)] == [1, 4, 7]
    assert not probe.due(3, 1)
    rows = probe.rows(model, x, BNP(model), epoch=2, step=4)
    assert [row["preconditioner"] for row in rows] == ["batch", "batch_damped", "running_damped"]
    assert all({"key", *row} == set(STEPS.names) for row in rows)
    assert all((row["epoch"], row["step"], row["layer"], row["neuron"]) == (2, 4, "2", 1) for row in rows)
    assert len(probe.rows(model, x, None, epoch=1, step=1)) == 2


def test_numerical_rank_counts_what_exceeds_the_tolerance() -> None:
    matrix = torch.zeros(3, 4, dtype=torch.float64)
    sigma = torch.tensor([1.0, 1e-15, 1e-16], dtype=torch.float64)
    assert numerical_rank(matrix, sigma) == 2
    assert isinstance(conditioning(nn.Sequential(nn.Linear(2, 2)), torch.randn(5, 2), layer="0")[0], Conditioning)


LABELS = torch.arange(20) % 3


@pytest.mark.regression
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"center": False},
        {"standardize": False},
        {"statistics": "batch"},
        {"statistics": "batch", "center": False},
        {"center": False, "standardize": False},
    ],
)
def test_the_probe_looks_at_the_step_that_is_made(options: dict[str, Any], bias: bool) -> None:
    """The step's own matrix, read off the gradients that it makes of a basis, gives the Hessian the same kappa."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5, bias=bias), nn.ReLU(), nn.Linear(5, 3)).double()
    bnp, x = BNP(model, rho=0.7, scale=False, **options), 1 + torch.randn(20, 4, dtype=torch.float64)
    F.cross_entropy(model(x + 1), LABELS).backward()
    bnp.precondition()
    model.zero_grad()
    found = {one.preconditioner: one for one in conditioning(model, x, layer="0", neuron=1, bnp=bnp)}["running_damped"]

    first = model[0]
    start = first.weight[1].detach() if not bias else torch.cat([first.bias[1:2].detach(), first.weight[1].detach()])

    def loss(parameters: torch.Tensor) -> torch.Tensor:
        z = x @ parameters[-4:] + (parameters[0] if bias else 0)
        hidden = first(x).detach()
        hidden = torch.cat([hidden[:, :1], z[:, None], hidden[:, 2:]], 1).relu()
        return F.cross_entropy(model[2](hidden), LABELS)

    hessian = torch.autograd.functional.hessian(loss, start)
    state = bnp.state_dict()
    columns = []
    for unit in torch.eye(len(start), dtype=torch.float64):
        bnp.load_state_dict(state)
        model.zero_grad()
        F.cross_entropy(model(x), LABELS).backward()
        first.weight.grad[1] = unit[-4:]
        if bias:
            first.bias.grad[1] = unit[0]
        bnp.precondition()
        columns.append(first.weight.grad[1] if not bias else torch.cat([first.bias.grad[1:2], first.weight.grad[1]]))
    values = torch.linalg.eigvals(torch.stack(columns, 1) @ hessian).real.sort(descending=True).values
    assert found.rank == len(values)
    assert found.kappa_preconditioned == pytest.approx((values[0] / values[-1]).item(), rel=1e-6)


class Named(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 5), nn.Linear(5, classes)

    def forward(self, images: Tensor) -> Tensor:
        output: Tensor = self.fc2(input=self.fc1(input=images).relu())
        return output


@pytest.mark.regression
def test_layers_called_by_name_are_seen() -> None:
    torch.manual_seed(0)
    model = Named(3)
    assert conditioning(model, torch.randn(8, 6), layer="fc1", neuron=0)
    shapes = tracked_shapes(BNP(model), model, torch.empty(8, 6, device="meta"))
    assert [shape.rows_in for shape in shapes] == [8, 8]


@pytest.mark.parametrize(
    "method", [{"kind": "kfac", "fisher": "empirical"}, {"kind": "kfac"}, {"kind": "eva"}], ids=str
)
def test_what_takes_gradients_at_outputs_is_not_known_before_the_first_step(method: dict[str, Any]) -> None:
    """Then it is, with what is kept of those gradients; the next step has no refresh."""
    torch.manual_seed(0)
    model, x = dense().double(), torch.randn(20, 4, dtype=torch.float64)
    rewriter = made("method", {**method, "every": 2}).preconditioner(model, Training(20))
    known = ["batch", "batch_damped"]
    assert [one.preconditioner for one in conditioning(model, x, layer="2", bnp=rewriter)] == known
    output = model(x)
    rewriter.look_back(output)
    F.cross_entropy(output, torch.arange(20) % 3).backward()
    rewriter.precondition()
    *_, last = conditioning(model, x, layer="2", neuron=1, bnp=rewriter)
    state = {name: value.clone() for name, value in rewriter._states[rewriter._layers[1]].items()}
    matrix = rewriter.transform.input_matrix(rewriter._layers[1], state)[0]
    loss, start = loss_of(model, x, "2", 1)
    values, vectors = torch.linalg.eigh(matrix)
    root = vectors * values.sqrt() @ vectors.mT
    values = torch.linalg.eigvalsh(root.T @ torch.func.hessian(loss)(start) @ root).flip(0)
    assert last.preconditioner == "running_damped"
    assert last.kappa_preconditioned == pytest.approx((values[0] / values[last.rank - 1]).item(), rel=1e-6)
