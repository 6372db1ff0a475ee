"""The lean form: the same step as the plain one, by another way."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from bnpbench.bnp import BNP
from bnpbench.bnp.costs import bnp_flops, lean_bnp_flops
from bnpbench.bnp.lean import Linear
from bnpbench.errors import StatisticsError
from bnpbench.methods.preconditioning import LEAN_CALLS
from bnpbench.suite import Settings
from bnpbench.training import models
from bnpbench.training.accounting import costs
from tests.support.oracle import Watched


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Linear(40, 12), nn.ReLU(), nn.Linear(12, 7), nn.Tanh(), Linear(7, 3)).to(dtype)


def rows(count: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return 1 + torch.randn(count, 40, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def lean(model: nn.Module, names: tuple[str, ...] = ("0", "4"), **options: object) -> BNP:
    return BNP(model, count="forward", lean=lambda name, module: name in names, **options)  # type: ignore[arg-type]


# A single row has no statistics of its own to precondition by.
@pytest.mark.parametrize(("count", "batch"), [(1, False), (2, False), (9, False), (60, False), (2, True), (60, True)])
@pytest.mark.parametrize("names", [("0",), ("4",), ("0", "4")])
def test_steps_equal_the_matrix_form(names: tuple[str, ...], count: int, batch: bool) -> None:
    model, twin = network(), network()
    bnp = lean(model, names, statistics="batch" if batch else "running")
    assert bnp.lean == names
    watched = Watched(twin, batch=batch)
    plain = BNP(twin, statistics="batch" if batch else "running")
    for seed in range(3):
        for one in (model, twin):
            one.zero_grad()
            one(rows(count, seed)).square().mean().backward()
        watched.check(plain)  # the plain form against explicit matrices; then the lean one against the plain
        bnp.precondition()
        compare(model, twin, bnp, plain, 1e-12)


@pytest.mark.parametrize("options", [{"scale": False}, {"center": False}, {"standardize": False}, {"rho": 0.5}])
def test_options_mean_the_same(options: dict[str, object]) -> None:
    model, twin = network(), network()
    bnp, plain = lean(model, **options), BNP(twin, **options)  # type: ignore[arg-type]
    for seed in range(2):
        for one in (model, twin):
            one.zero_grad()
            one(rows(9, seed)).square().mean().backward()
        plain.precondition()
        bnp.precondition()
        compare(model, twin, bnp, plain, 1e-12)


def test_float32_steps_equal_the_plain_ones() -> None:
    model, twin = network(torch.float32), network(torch.float32)
    bnp, plain = lean(model), BNP(twin)
    for seed in range(5):
        for one in (model, twin):
            one.zero_grad()
            one(rows(16, seed, torch.float32)).square().mean().backward()
        bnp.precondition()
        plain.precondition()
        compare(model, twin, bnp, plain, 1e-5)


def compare(model: nn.Module, twin: nn.Module, bnp: BNP, plain: BNP, tolerance: float) -> None:
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert (ours.grad - theirs.grad).abs().max() <= tolerance * theirs.grad.abs().max()
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(bnp.state_dict()[name], value, rtol=tolerance, atol=tolerance)


def test_outside_training_nothing_counts_and_gradients_are_plain() -> None:
    model = network()
    bnp = lean(model)
    before = bnp.state_dict()
    twin = copy.deepcopy(model)  # carries no hook
    inputs = rows(9, 0)
    model.eval()
    for one in (model, twin):
        one(inputs).square().mean().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]
    model.train().zero_grad()
    with torch.no_grad():
        model(inputs)
    bnp.precondition()
    assert all(torch.equal(value, before[name]) for name, value in bnp.state_dict().items())


def test_under_autocast_the_plain_form_runs() -> None:
    model, twin = network(torch.float32), network(torch.float32)
    bnp, plain = lean(model), BNP(twin)
    for one, preconditioner in ((model, bnp), (twin, plain)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = one(rows(16, 0, torch.float32)).square().mean()
        loss.backward()
        preconditioner.precondition()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]


def test_copies_pickles_and_released_models_are_plain() -> None:
    model = network()
    bnp = lean(model)
    copied, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    bnp.remove()
    assert bnp.lean == ()
    gradients = []
    for one in (network(), copied, pickled, model):
        one(rows(9, 0)).square().mean().backward()
        gradients.append([parameter.grad for parameter in one.parameters()])
    for other in gradients[1:]:
        assert all(torch.equal(a, b) for a, b in zip(gradients[0], other, strict=True))  # type: ignore[arg-type]


def test_a_layer_without_bias_stays_plain() -> None:
    model = nn.Sequential(Linear(40, 12, bias=False), nn.ReLU(), Linear(12, 3)).double()
    watched, bnp = Watched(model), lean(model, ("0", "2"))
    assert bnp.lean == ("2",)
    model(rows(9, 0)).square().mean().backward()
    bnp.precondition()
    weight = model[0].weight
    assert weight.grad is not None
    layer = watched.oracles["0"]
    twin = nn.Sequential(Linear(40, 12, bias=False), nn.ReLU(), Linear(12, 3)).double()
    twin.load_state_dict(model.state_dict())
    twin(rows(9, 0)).square().mean().backward()
    expected = layer.step(watched.inputs["0"], twin[0].weight.grad, None)
    assert (weight.grad - expected.weight).abs().max() <= 1e-12 * expected.magnitude


def test_it_needs_its_statistics_in_the_backward_pass() -> None:
    with pytest.raises(ValueError, match="count="):
        BNP(network(), lean=lambda name, module: True)


@pytest.mark.regression
@pytest.mark.parametrize("zeroed_in_place", [False, True])
def test_a_backward_pass_that_was_dropped_is_no_micro_batch(zeroed_in_place: bool) -> None:
    """Its rows are in the running values from its first gradient on, so that the next pass is refused."""
    model = network()
    bnp = lean(model)
    model(rows(5, 1)).square().sum().backward()
    model.zero_grad(set_to_none=not zeroed_in_place)
    with pytest.raises(StatisticsError, match="called again before precondition"):
        model(rows(5, 2))
    assert bnp.lean == ("0", "4")


@pytest.mark.regression
@pytest.mark.parametrize("owned", [("0", "2"), ("2", "4"), ("4", "0")])
def test_two_optimizers_fold_the_rows_in_once(owned: tuple[str, str]) -> None:
    """The second one's layers were folded into the running values again, after the backward pass had done so."""
    model, twin = network(), network()
    bnp, plain = lean(model), BNP(twin)
    optimizers = []
    for one, preconditioner in ((model, bnp), (twin, plain)):
        first = [p for name, p in one.named_parameters() if name.split(".")[0] in owned]
        others = [p for name, p in one.named_parameters() if name.split(".")[0] not in owned]
        optimizers.append([torch.optim.SGD(parameters, lr=0.1) for parameters in (first, others)])
        for optimizer in optimizers[-1]:
            preconditioner.attach(optimizer)
    for seed in range(3):
        for one, steps in zip((model, twin), optimizers, strict=True):
            one.zero_grad()
            one(rows(9, seed)).square().mean().backward()
            for optimizer in steps:
                optimizer.step()
        compare(model, twin, bnp, plain, 1e-11)


@pytest.mark.regression
def test_freezing_a_bias_changes_it_as_it_does_the_plain_form() -> None:
    """A layer with a frozen bias is preconditioned as one without; the lean form went on with the formula for one."""
    model, twin = network(), network()
    bnp, plain = lean(model), BNP(twin)
    for step in range(3):
        for one, preconditioner in ((model, bnp), (twin, plain)):
            one.zero_grad()
            one[0].bias.requires_grad_(step != 1)
            one(rows(9, step)).square().mean().backward()
            preconditioner.precondition()
        for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-11, atol=1e-14)
        assert (model[0].bias.grad is None) == (step == 1)


@pytest.mark.regression
@pytest.mark.parametrize("steps", [1, 3])
def test_a_model_that_was_cast_takes_the_rows_of_its_first_step_once(steps: int) -> None:
    """They were folded in in the backward pass, and again when the running values had followed the model."""
    model, twin = network(torch.float32), network(torch.float32)
    bnp = lean(model)
    plain = BNP(twin.double())
    model.double()
    for step in range(steps):
        for one, preconditioner in ((model, bnp), (twin, plain)):
            one.zero_grad()
            one(rows(6, step)).square().mean().backward()
            preconditioner.precondition()
    compare(model, twin, bnp, plain, 1e-11)


@pytest.mark.parametrize("engine", ["eager", "compiled"])
@pytest.mark.parametrize("width", [100, 1024])
@pytest.mark.parametrize("batch_size", [1, 60, 256])
def test_a_cell_takes_the_form_that_costs_less(engine: str, batch_size: int, width: int) -> None:
    settings = Settings.model_validate(
        {
            "dataset": {"kind": "synthetic", "shape": (3072,), "train": 300, "test": 10, "classes": 10},
            "network": {"kind": "fc", "hidden": (width, 100)},
            "method": "bnp",
            "optimizer": {"kind": "sgd", "lr": 0.1},
            "batch_size": batch_size,
            "epochs": 1,
            "device": "cpu",
            "engine": engine,
            "threads": 1,
        }
    )
    generator = torch.Generator().manual_seed(0)
    bnp = models.preconditioner(settings, models.build_model(settings, (3072,), 10, generator))
    assert bnp is not None
    shapes = {"hidden1": (3072, width), "hidden2": (width, 100), "output": (100, 10)}
    for name, shape in shapes.items():
        saved = bnp_flops(*shape, batch_size) - lean_bnp_flops(*shape, batch_size)
        assert (name in bnp.lean) == (saved > (LEAN_CALLS if engine == "eager" else 0))
    assert ("hidden1" in bnp.lean) == (width == 1024 or (engine == "compiled" and batch_size < 147))
    form = costs(settings, (3072,), 10).columns.bnp_form
    assert form == ("lean" if len(bnp.lean) == 3 else f"lean: {', '.join(bnp.lean)}" if bnp.lean else "plain")
    plain = settings.model_copy(update={"method": settings.method.model_copy(update={"form": "plain"})})
    other = models.preconditioner(plain, models.build_model(plain, (3072,), 10, generator))
    assert other is not None
    assert other.lean == ()
