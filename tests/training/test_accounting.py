"""Traffic and operators of a step, against counts by hand."""

from __future__ import annotations

from typing import Any

import pytest

from bnpbench.measure.step_costs import Columns, Costs
from bnpbench.suite import Settings
from bnpbench.training.accounting import costs, kept_bytes
from tests.support.others import NEEDS_OPTIMIZERS
from tests.support.training import cell

N, WIDTHS, CLASSES = 10, (12, 9, 7), 5
PARAMETERS = 12 * 9 + 9 + 9 * 7 + 7 + 7 * 5 + 5
LOSS = N * CLASSES * 4 + N * 8 + 4  # log-softmax, labels, and the weight that nll_loss adds up


def traffic(**changes: Any) -> int:
    found = costs(cell(**changes).settings, (12,), CLASSES).columns.bytes_per_step
    assert found is not None
    return found


def by_hand(copies: int, kept: int, running: int = 0) -> int:
    """``copies`` of the parameters, running statistics and what is kept, each read and written; the batch read."""
    return 2 * (4 * copies * PARAMETERS + running + kept) + 4 * N * 12


def test_vanilla_by_hand() -> None:
    kept = 4 * N * sum(WIDTHS) + LOSS
    assert traffic(optimizer={"kind": "sgd", "lr": 0.1}) == by_hand(2, kept)
    assert traffic(optimizer={"kind": "sgd", "lr": 0.1, "momentum": 0.9}) == by_hand(3, kept)


@pytest.mark.regression
@pytest.mark.parametrize("parts", [2, 5])
def test_micro_batches_move_as_much_and_keep_less_at_a_time(parts: int) -> None:
    """The sum of the loss of each is a number of its own."""
    assert traffic(accumulate=parts) - traffic() == 2 * 4 * (parts - 1)
    whole, part = (kept_bytes(cell(accumulate=k).settings, (12,), CLASSES) for k in (1, parts))
    assert part == (whole - 4) // parts + 4


def test_bnp_adds_its_running_statistics_alone() -> None:
    added = traffic(method="bnp") - traffic(method="vanilla")
    assert added == 2 * 4 * 2 * sum(WIDTHS)


def test_bn_adds_its_outputs_parameters_and_statistics() -> None:
    added = traffic(method="bn") - traffic(method="vanilla")
    features = 9 + 7
    parameters = 3 * 2 * features * 4  # with gradients and momentum
    buffers = 2 * features * 4 + 2 * 8  # and two counters
    kept = N * features * 4 + 2 * features * 4 + 2 * features * 4  # outputs; mean and deviation; running values
    assert added == 2 * (parameters + buffers + kept)


def test_bf16_keeps_activations_in_two_bytes_and_copies_weights() -> None:
    optimizer = {"kind": "sgd", "lr": 0.1}
    weights = 2 * (9 * 7 + 7 * 5)  # the first layer passes no gradient on
    kept = 2 * N * sum(WIDTHS) + weights + LOSS
    assert traffic(optimizer=optimizer, precision="bf16") == by_hand(2, kept)


def test_bf16_adds_its_casts_to_the_operators() -> None:
    full, half = (costs(cell(precision=p).settings, (12,), CLASSES).columns for p in ("float32", "bf16"))
    assert full.operators_per_step is not None
    assert half.operators_per_step is not None
    casts = 6 + 1 + 1  # parameters, images, logits; each but that of the images has one in the backward pass
    assert half.operators_per_step - full.operators_per_step == 2 * casts - 1
    assert half.flops_model == full.flops_model


@pytest.mark.parametrize("method", ["bnp+gn", "renorm", "ln", "4things"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_every_method_is_counted(method: str, precision: str) -> None:
    changes = {"network": {"kind": "fc", "hidden": (8, 8)}, "precision": precision}
    assert traffic(method=method, **changes) > traffic(method="vanilla", **changes)


PAPERS = {16: 1_688_352, 256: 26_817_312, 512: 53_621_536}
"""32nN + 4n over the 3,072 features of x and two hidden layers of 100: equation (2) with h0 = x, section 5.1."""


def of_the_paper(batch_size: int, **method: Any) -> Any:
    changes = {"dataset": {"kind": "cifar10"}, "network": {"kind": "fc", "hidden": (100, 100)}}
    settings = cell(**changes, method={"kind": "bn", **method}, batch_size=batch_size).settings
    return costs(settings, (3072,), 10).columns


def test_bn_with_the_input_is_predicted_as_the_paper_counts() -> None:
    assert {size: of_the_paper(size, input=True).flops_method_predicted for size in PAPERS} == PAPERS


@pytest.mark.parametrize("size", PAPERS)
def test_bn_with_the_input_is_counted_without_a_gradient_of_x_and_with_what_its_scale_takes(size: int) -> None:
    """By hand: mean, centring, square, its mean, division, scale and shift are 7nN forward, and epsilon is n.

    On x the backward pass is that of the scale and the shift, 3nN: the product with x, and two sums over the rows. For
    these the gradient of what the first layer reads is needed, the product dZ W, 2 N n n'.
    """
    with_input, hidden, n = of_the_paper(size, input=True), of_the_paper(size), 3072
    product = 2 * size * n * 100
    added = with_input.flops_method_counted - hidden.flops_method_counted
    assert with_input.flops_method_products == product == 614_400 * size
    assert hidden.flops_method_products == 0
    assert added == 7 * size * n + n + 3 * size * n + product
    assert with_input.flops_model == hidden.flops_model


@pytest.mark.parametrize("kind", ["renorm", "4things"])
def test_every_trained_scale_of_the_input_takes_that_product(kind: str) -> None:
    changes = {"dataset": {"kind": "cifar10"}, "network": {"kind": "fc", "hidden": (100, 100)}, "batch_size": 32}
    found = costs(cell(**changes, method={"kind": kind, "input": True}).settings, (3072,), 10).columns
    assert found.flops_method_products == 614_400 * 32


@pytest.mark.regression
@pytest.mark.parametrize("left_out", ["scale", "center", "standardize"])
def test_the_formula_of_bnp_is_not_that_of_an_ablation(left_out: str) -> None:
    told = {"dataset": "digits", "network": {"kind": "fc", "hidden": (9,)}, "optimizer": {"kind": "sgd", "lr": 0.1}}
    settings = Settings.model_validate(
        {**told, "batch_size": 8, "epochs": 1, "device": "cpu", "engine": "eager", "threads": 1}
        | {"method": {"kind": "bnp", left_out: False}}
    )
    found = costs(settings, (64,), 10).columns
    assert (found.flops_method_predicted, found.flops_method_counted) == (None, None)
    assert found.flops_method_executed


def of(method: Any, batch_size: int, devices: int, **changes: Any) -> Costs:
    settings = {
        "dataset": {"kind": "digits"},
        "network": {"kind": "fc", "hidden": (9, 8)},
        "method": method,
        "optimizer": {"kind": "sgd", "lr": 0.1},
        "batch_size": batch_size,
        "epochs": 1,
        "device": "cpu",
        "devices": devices,
        "engine": "eager",
        "threads": 1,
    }
    return costs(Settings.model_validate(settings | changes), (64,), 10)


def columns(method: Any, batch_size: int, devices: int, precision: str) -> Columns:
    return of(method, batch_size, devices, precision=precision).columns


@pytest.mark.parametrize("batch_size", [6, 7])
def test_products_and_formulas_are_those_of_the_whole_batch(batch_size: int) -> None:
    for method in ("vanilla", "bn", "bnp"):
        one, two = (of(method, batch_size, devices).columns for devices in (1, 2))
        for column in ("parameters", "flops_model", "flops_method_predicted", "flops_method_counted"):
            assert getattr(one, column) == getattr(two, column)


def test_each_device_preconditions_the_whole_gradient() -> None:
    """Twice what a step on half the batch executes; on an uneven batch a step on each part."""
    executed = {n: of("bnp", n, 1).columns.flops_method_executed for n in (3, 4)}
    assert all(executed.values())
    assert of("bnp", 6, 2).columns.flops_method_executed == 2 * executed[3]
    assert of("bnp", 7, 2).columns.flops_method_executed == executed[3] + executed[4]
    operators = of("bnp", 3, 1).columns.operators_per_step
    assert of("bnp", 6, 2).columns.operators_per_step == 2 * operators


def test_batch_normalization_over_one_example_a_device() -> None:
    assert of("bn", 3, 2).not_applicable is None
    reason = of({"kind": "bn", "sync": False}, 3, 2).not_applicable
    assert reason is not None
    assert "single row" in reason
    assert of({"kind": "bn", "sync": False}, 4, 2).not_applicable is None


@pytest.mark.regression
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("method", ["vanilla", "bnp", {"kind": "bn", "sync": False}, "ln"])
def test_bytes_and_operators_are_those_of_each_device_added_up(method: Any, precision: str) -> None:
    """The bytes counted the weights of one device, the operators the casts of one."""
    three, four = (columns(method, examples, 1, precision) for examples in (3, 4))
    for column in ("bytes_per_step", "operators_per_step"):
        share, larger = getattr(three, column), getattr(four, column)
        assert getattr(columns(method, 6, 2, precision), column) == 2 * share
        assert getattr(columns(method, 7, 2, precision), column) == share + larger


@pytest.mark.parametrize(
    ("optimizer", "parts"),
    [
        ({"kind": "sgd", "lr": 0.1}, f"sgd: {PARAMETERS}, weight decay coupled"),
        (
            {"kind": "muon"},
            f"muon: {12 * 9 + 9 * 7}, weight decay decoupled\n"
            f"adamw: {PARAMETERS - 12 * 9 - 9 * 7}, weight decay decoupled",
        ),
        pytest.param({"kind": "shampoo"}, f"shampoo: {PARAMETERS}, weight decay coupled", marks=NEEDS_OPTIMIZERS),
    ],
    ids=str,
)
def test_what_each_optimizer_serves(optimizer: dict[str, Any], parts: str) -> None:
    assert costs(cell(optimizer=optimizer).settings, (12,), CLASSES).columns.optimizer_parts == parts


@NEEDS_OPTIMIZERS
@pytest.mark.parametrize("kind", ["kron", "shampoo", "soap"])
def test_of_an_optimizer_whose_steps_differ_the_methods_operations_are_known(kind: str) -> None:
    """And nothing of its own; it is not run on tensors without data."""
    found = costs(cell(method="bnp", optimizer={"kind": kind}).settings, (12,), CLASSES)
    known = costs(cell(method="bnp").settings, (12,), CLASSES).columns
    assert (found.not_applicable, found.uncounted) == (None, None)
    assert found.columns.flops_method_executed == known.flops_method_executed
    assert found.columns.parameters == known.parameters
    assert (found.columns.operators_per_step, found.columns.bytes_per_step) == (None, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"optimizer": {"kind": "soap"}, "engine": "compiled"}, "the steps of soap cannot be traced"),
        (
            {"optimizer": {"kind": "muon"}, "network": {"kind": "fc", "hidden": ()}},
            "muon serves the matrices of hidden",
        ),
    ],
    ids=str,
)
def test_an_optimizer_that_has_no_meaning_there_makes_a_cell_not_applicable(
    changes: dict[str, Any], reason: str
) -> None:
    found = costs(cell(**changes).settings, (12,), CLASSES)
    assert found.not_applicable is not None
    assert found.not_applicable.startswith(reason)


def test_what_an_optimizer_multiplies_is_not_the_models() -> None:
    muon, sgd = (of({"kind": "bnp"}, 10, 1, optimizer={"kind": kind, "lr": 0.1}).columns for kind in ("muon", "sgd"))
    assert muon.flops_model == sgd.flops_model
    assert muon.flops_method_products == sgd.flops_method_products
