"""Torch counts the weight gradient of a grouped convolution as if every output saw every input channel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bnpbench.measure.flops import PRODUCTS, FlopCount
from bnpbench.suite import Settings
from bnpbench.training.accounting import costs


def counted(layer: nn.Module, counter: Any, *, of_input: bool = True) -> tuple[int, int]:
    """Operations of the output, and of the gradients."""
    images = torch.randn(4, 8, 6, 7, requires_grad=of_input)
    totals = []
    with FlopCounterMode(display=False, custom_mapping=counter) as flops:
        output = layer(images)
        totals.append(flops.get_total_flops())
        output.backward(torch.ones_like(output))
        totals.append(flops.get_total_flops() - totals[0])
    return totals[0], totals[1]


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("of_input", [True, False])
def test_each_gradient_takes_as_much_as_the_output(kind: type[nn.Module], groups: int, of_input: bool) -> None:
    layer = kind(8, 16, 3, stride=2, padding=1, groups=groups, bias=False)
    forward, backward = counted(layer, PRODUCTS, of_input=of_input)
    positions = 3 * 4 if kind is nn.Conv2d else 6 * 7
    assert forward == 2 * 4 * positions * 16 * 8 * 9 // groups
    assert backward == (1 + of_input) * forward
    if groups == 1:
        assert (forward, backward) == counted(layer, {}, of_input=of_input)


@pytest.mark.parametrize(("train", "each"), [(True, 9), (False, 5)])
def test_batch_norm_through_fixed_statistics_costs_less(train: bool, each: int) -> None:
    x, vector = torch.randn(6, 3), torch.ones(3)
    with FlopCount() as flops:
        torch.ops.aten.native_batch_norm_backward(
            x, x, vector, vector, vector, vector, vector, train, 1e-5, [True, True, True]
        )
    assert flops.total == each * 18


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
