"""The factors of one neuron's Hessian, against torch.func.hessian."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bnpbench.errors import BnpbenchError, NotApplicable
from bnpbench.measure.conditioning import conditioning
from bnpbench.measure.curvature import layer_rows, look, softmax_factor
from tests.support.neurons import CASES, Tokens, case_of, loss_of

# torch.func.hessian scripts its forward-mode rules when first used
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


class Named(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 5), nn.Linear(5, classes)

    def forward(self, images: Tensor) -> Tensor:
        output: Tensor = self.fc2(input=self.fc1(input=images).relu())
        return output


@pytest.mark.parametrize("case", CASES)
def test_the_factors_give_the_hessian(case: str) -> None:
    model, x, layer, neuron = case_of(case)
    view = look(model, x, layer, neuron)
    rows = view.rows if not view.has_bias else torch.cat([torch.ones_like(view.rows[..., :1]), view.rows], -1)
    products = view.directions @ rows
    hessian = torch.einsum("nk,nkm,nkl->ml", view.log_weights.exp(), products, products) / len(x)
    loss, start = loss_of(model, x, layer, neuron)
    expected = torch.func.hessian(loss)(start)
    assert expected.abs().max() > 1e-4
    torch.testing.assert_close(hessian, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


def test_the_softmax_factor_is_a_square_root() -> None:
    logits = 8 * torch.randn(5, 6, dtype=torch.float64)
    log_p, jacobian = torch.log_softmax(logits, 1), torch.randn(5, 6, 4, dtype=torch.float64)
    log_weights, rows = softmax_factor(log_p, jacobian)
    p = log_p.exp()
    middle = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    expected = jacobian.mT @ middle @ jacobian
    torch.testing.assert_close(rows.mT @ (log_weights.exp().unsqueeze(2) * rows), expected, rtol=1e-12, atol=1e-14)


def test_rows_multiply_to_the_layers_output() -> None:
    module = nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(1, 2), padding_mode="reflect").double()
    x = torch.randn(3, 4, 7, 6, dtype=torch.float64)
    output = module(x) - module.bias.view(-1, 1, 1)
    torch.testing.assert_close(layer_rows(module, x) @ module.weight.flatten(1).T, output.flatten(2).mT)


@pytest.mark.parametrize(
    ("model", "layer", "says"),
    [
        (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), "0", "not piecewise linear"),
        (nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)), "0", "not piecewise linear"),
        (nn.Sequential(nn.Linear(4, 4), *2 * [shared := nn.Linear(4, 4)], nn.Linear(4, 3)), "1", "called 2 times"),
    ],
)
def test_where_the_hessian_has_no_such_form(model: nn.Module, layer: str, says: str) -> None:
    with pytest.raises(NotApplicable, match=says):
        conditioning(model, torch.randn(8, 4), layer=layer)


@pytest.mark.parametrize(
    ("layer", "neuron", "says"),
    [("outptu", 0, "did you mean 'output'"), ("output", 3, "neurons 0 to 2, not 3"), ("x", 0, "there are 'mix'")],
)
def test_a_wrong_layer_or_neuron_is_named(layer: str, neuron: int, says: str) -> None:
    with pytest.raises(BnpbenchError, match=says):
        conditioning(Tokens(), torch.randn(2, 3, 4), layer=layer, neuron=neuron)


@pytest.mark.regression
@pytest.mark.parametrize(("examples", "classes"), [(4, 1), (0, 3)])
def test_too_few_examples_or_classes_are_said(examples: int, classes: int) -> None:
    """A classifier with one output has no Hessian in this form."""
    with pytest.raises(NotApplicable, match=f"{examples} examples of {classes} classes"):
        conditioning(Named(classes), torch.randn(examples, 6), layer="fc1", neuron=0)
