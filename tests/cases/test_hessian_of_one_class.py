"""A classifier with one output has no Hessian in this form, and a layer may be called by the name of its argument."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bnpbench import BNP
from bnpbench.bnp.costs import tracked_shapes
from bnpbench.errors import NotApplicable
from bnpbench.measure.conditioning import conditioning


class Named(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 5), nn.Linear(5, classes)

    def forward(self, images: Tensor) -> Tensor:
        output: Tensor = self.fc2(input=self.fc1(input=images).relu())
        return output


@pytest.mark.parametrize(("examples", "classes"), [(4, 1), (0, 3)])
def test_it_is_said(examples: int, classes: int) -> None:
    with pytest.raises(NotApplicable, match=f"{examples} examples of {classes} classes"):
        conditioning(Named(classes), torch.randn(examples, 6), layer="fc1", neuron=0)


def test_layers_called_by_name_are_seen() -> None:
    torch.manual_seed(0)
    model = Named(3)
    assert conditioning(model, torch.randn(8, 6), layer="fc1", neuron=0)
    shapes = tracked_shapes(BNP(model), model, torch.empty(8, 6, device="meta"))
    assert [shape.rows_in for shape in shapes] == [8, 8]
