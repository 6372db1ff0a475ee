"""K-FAC, held to explicit Kronecker products."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bnpbench.bnp.rewriter import Rewriter
from bnpbench.errors import StatisticsError
from bnpbench.losses.base import LossPlugin
from bnpbench.methods.preconditioning import Training
from bnpbench.suite.settings import training_of
from tests.support.curvature import NEEDS_CURVLINOPS, Layers, seen
from tests.support.kinds import made
from tests.support.networks import CIFAR, network_of
from tests.support.training import cell, trainer, weights
from tests.support.two_sides import CASES, assert_gradients, check, ranks_check

FC, FLAT = {"kind": "fc", "hidden": (30, 20)}, (3072,)
FISHERS = ["sampled", "exact", "empirical"]


def options(fisher: str, **more: Any) -> dict[str, Any]:
    return {"kind": "kfac", "fisher": fisher, "rho": 0.6, "damping": 0.02, "every": 2, **more}


@pytest.mark.parametrize("fisher", FISHERS)
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_kronecker_product(name: str, fisher: str) -> None:
    check(name, options(fisher))


@pytest.mark.parametrize("fisher", FISHERS)
@pytest.mark.parametrize(("parts", "count"), [(1, "forward"), (2, "backward"), (2, "forward")])
def test_micro_batches_are_one_batch(fisher: str, parts: int, count: str) -> None:
    for name in ("dense", "convolutions", "tokens"):
        check(name, options(fisher), parts, count)


def test_two_ranks_are_one_device(tmp_path: Path) -> None:
    cases = [(name, options(fisher)) for name in ("dense", "convolutions", "tokens") for fisher in FISHERS]
    ranks_check(tmp_path, [*cases, ("pooled tokens", options("exact"))])


@pytest.mark.parametrize("fisher", FISHERS)
def test_the_statistics_of_the_batch_alone(fisher: str) -> None:
    check("convolutions", options(fisher, rho=0.0, every=1))


def test_a_loop_that_forgets_the_further_pass_is_told() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    rewriter = Rewriter(model, made("method", options("sampled")))
    model(torch.ones(4, 3)).sum().backward()
    with pytest.raises(StatisticsError, match=r"layer '0': kfac takes .*call look_back\(output\) after each forward"):
        rewriter.precondition()


@pytest.mark.parametrize("fisher", ["sampled", "exact"])
def test_gradients_are_left_alone_by_the_further_passes(fisher: str) -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(5, 3)
    rewriter = Rewriter(model, made("method", options(fisher)))
    output = model(x)
    rewriter.look_back(output)
    assert all(parameter.grad is None for parameter in model.parameters())
    F.cross_entropy(output, torch.tensor([0, 1, 0, 1, 1])).backward()
    plain = copy.deepcopy(model)
    for parameter in plain.parameters():
        parameter.grad = None
    F.cross_entropy(plain(x), torch.tensor([0, 1, 0, 1, 1])).backward()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_gradient_that_was_dropped_does_not_count() -> None:
    """Neither do its rows, nor what the further pass saw."""
    x, labels = torch.randn(2, 5, 3, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 1])
    found = []
    for batches in (x, x[1:]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
        rewriter = Rewriter(model, made("method", options("exact")))
        for batch in batches:
            model.zero_grad()
            output = model(batch)
            rewriter.look_back(output)
            F.cross_entropy(output, labels).backward()
        rewriter.precondition()
        found.append(model[0].weight.grad)
    torch.testing.assert_close(*found, rtol=1e-12, atol=0)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared, self.last = nn.Linear(4, 4).double(), nn.Linear(4, 3).double()

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.shared(torch.tanh(self.shared(h)))))


@pytest.mark.parametrize("count", ["backward", "forward"])
@pytest.mark.parametrize("fisher", ["exact", "empirical"])
def test_a_layer_that_is_called_twice_serves_each_label_once(fisher: str, count: Any) -> None:
    torch.manual_seed(0)
    model, x, labels = Twice(), torch.randn(7, 4, dtype=torch.float64), torch.arange(7) % 3
    rewriter, oracle = Rewriter(model, made("method", options(fisher)), count=count), Layers(model, options(fisher))
    output = model(x)
    rewriter.look_back(output)
    F.cross_entropy(output, labels).backward()
    expected = oracle.step(seen(copy.deepcopy(model), x, labels, fisher))
    rewriter.precondition()
    assert_gradients(model, expected)


@pytest.mark.regression
@pytest.mark.parametrize("fisher", ["exact", "empirical"])
def test_a_forward_pass_that_nobody_follows_takes_no_labels(fisher: str) -> None:
    """The labels of the next pass were counted as its own."""
    torch.manual_seed(0)
    model, x, labels = Twice(), torch.randn(7, 4, dtype=torch.float64), torch.arange(7) % 3
    rewriter, oracle = Rewriter(model, made("method", options(fisher))), Layers(model, options(fisher))
    model(x[:5])
    output = model(x)
    rewriter.look_back(output)
    F.cross_entropy(output, labels).backward()
    expected = oracle.step(seen(copy.deepcopy(model), x, labels, fisher))
    rewriter.precondition()
    assert_gradients(model, expected)


@pytest.mark.parametrize("fisher", FISHERS)
def test_labels_of_another_loss_than_the_cross_entropy_are_the_datas(fisher: str) -> None:
    found = made("method", options(fisher)).refuses(Training(8, entropy=False))
    assert (found is None) == (fisher == "empirical")
    assert found is None or found.option == "fisher"


def test_fp16_is_refused() -> None:
    assert made("method", "kfac").refuses(Training(8, precision="fp16")) is not None
    assert made("method", "kfac").refuses(Training(8, precision="bf16")) is None


@pytest.mark.parametrize("fisher", FISHERS)
def test_resumed_is_undisturbed(fisher: str) -> None:
    """Between two refreshes, bit by bit: running values, inverses, the numbers of steps and of draws."""
    method = {"kind": "kfac", "fisher": fisher, "damping": 1.0, "every": 4}
    undisturbed, before, after = (trainer(method=method) for _ in range(3))
    batches = list(before.examples.training(torch.arange(100), 10, 0))
    for batch in batches[:6]:
        undisturbed.step(*batch)
        before.step(*batch)
    after.state.resume_from(before.state.snapshot())
    assert len(batches) == 10
    for batch in batches[6:]:
        undisturbed.step(*batch)
        after.step(*batch)
    assert torch.equal(weights(undisturbed), weights(after))
    one, other = (each.bnp.state_dict() for each in (undisturbed, after))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert {int(value) for name, value in one.items() if name.endswith("steps")} == {10}
    assert one.get("draws", 10 if fisher == "empirical" else None) == (50 if fisher == "exact" else 10)


@pytest.mark.parametrize(("network", "shape"), [(FC, FLAT), ("cnn", CIFAR)])
@pytest.mark.parametrize("every", [1, 7])
def test_what_it_counts_is_what_the_formula_says(network: Any, shape: tuple[int, ...], every: int) -> None:
    """Where the step's own pass gives the gradients; what asks whether a matrix is finite is no arithmetic."""
    model = network_of(network, "kfac", shape)
    batch = torch.empty(5, *shape, device="meta")
    found = made("method", options("empirical", every=every)).published(model, batch)
    assert found.predicted == pytest.approx(found.counted, rel=5e-3)


def test_further_passes_cost_what_they_are() -> None:
    """Ten of them for ten classes, each with the products of all layers but the first; the loss costs little."""
    model = network_of(FC, "kfac", FLAT)
    batch = torch.empty(64, *FLAT, device="meta")
    found = {f: made("method", options(f)).published(model, batch) for f in FISHERS}
    passes = [2 * 64 * (30 * 20 + 20 * 10) + sum(2 * 64 * o * o for o in (30, 20, 10))]
    assert found["sampled"].predicted == found["empirical"].predicted + 2 * 64 * (30 * 20 + 20 * 10)
    assert found["exact"].predicted == found["sampled"].predicted + 9 * passes[0]
    for fisher in ("sampled", "exact"):
        assert found[fisher].predicted < found[fisher].counted < 1.02 * found[fisher].predicted


@pytest.mark.parametrize(("network", "shape"), [(FC, FLAT), ("cnn", CIFAR), ({"kind": "vit", "depth": 2}, CIFAR)])
@pytest.mark.parametrize("fisher", ["sampled", "exact"])
def test_further_passes_are_predicted_of_any_network(network: Any, shape: tuple[int, ...], fisher: str) -> None:
    """What attentions multiply was left out: 7 % of all operations of a transformer."""
    model = network_of(network, "kfac", shape)
    found = made("method", options(fisher)).published(model, torch.empty(16, *shape, device="meta"))
    assert found.predicted <= found.counted * 1.001
    assert found.counted < 1.02 * found.predicted


def test_asking_what_it_costs_leaves_no_trace() -> None:
    model = network_of({"kind": "fc", "hidden": (5,)}, "kfac", FLAT)
    made("method", "kfac").published(model, torch.empty(4, *FLAT, device="meta"))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@NEEDS_CURVLINOPS
@pytest.mark.filterwarnings("ignore")  # that names of torch, which it uses, are old
@pytest.mark.parametrize(("fisher", "theirs"), [("exact", "type-2"), ("empirical", "empirical")])
@pytest.mark.parametrize("network", ["dense", "convolution"])
def test_curvlinops_finds_the_same_factors(network: str, fisher: str, theirs: str) -> None:
    from curvlinops import KFACLinearOperator

    torch.manual_seed(0)
    first = nn.Linear(12, 6) if network == "dense" else nn.Conv2d(1, 2, (2, 3), padding=(1, 0), stride=(1, 2))
    shape = (12,) if network == "dense" else (1, 3, 5)
    width = first(torch.zeros(1, *shape)).numel()
    model = nn.Sequential(first, nn.Tanh(), nn.Flatten(), nn.Linear(width, 3)).double()
    x, labels = torch.randn(7, *shape, dtype=torch.float64), torch.arange(7) % 3
    reference = KFACLinearOperator(
        model, nn.CrossEntropyLoss(), list(model.parameters()), [(x, labels)], fisher_type=theirs,
        separate_weight_and_bias=False, check_deterministic=False,
    )  # fmt: skip
    reference.compute_kronecker_factors()
    rewriter = Rewriter(model, made("method", options(fisher, rho=0.0, every=1)))
    output = model(x)
    rewriter.look_back(output)
    F.cross_entropy(output, labels).backward()
    rewriter.precondition()
    found = rewriter.state_dict()
    for layer in ("0", "3"):
        ours, expected = found[f"{layer}.inputs"][0], reference._input_covariances[layer]
        torch.testing.assert_close(ours.roll((-1, -1), (0, 1)), expected, rtol=1e-12, atol=1e-14)  # the ones last
        expected = reference._gradient_covariances[layer]
        torch.testing.assert_close(found[f"{layer}.outputs"][0], expected, rtol=1e-12, atol=1e-14)


def test_a_cell_with_a_loss_of_ones_own_knows_that_there_is_no_softmax() -> None:
    class Hinge(LossPlugin):
        kind: Literal["hinge"] = "hinge"

    settings = cell(method="kfac").settings
    assert training_of(settings).entropy
    assert not training_of(settings.model_copy(update={"loss": Hinge()})).entropy
