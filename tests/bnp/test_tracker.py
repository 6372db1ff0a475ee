"""What BNP and other preconditioners share: whose a layer is, whose step it is, what is refused."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from bnpbench import BNP
from bnpbench.bnp import tracker
from bnpbench.bnp.rewriter import Rewriter
from bnpbench.errors import StatisticsError
from bnpbench.methods.foof import Foof
from tests.support.matrices import Compared, images, network


def test_two_of_them_cannot_have_one_layer() -> None:
    model = network()
    rewriter = Rewriter(model, Foof.made())
    with pytest.raises(ValueError, match="layer '0' is tracked by another foof"):
        BNP(model)
    rewriter.remove()
    bnp = BNP(model)
    with pytest.raises(ValueError, match="layer '0' is tracked by another BNP"):
        Rewriter(model, Foof.made())
    del bnp
    gc.collect()
    Rewriter(model, Foof.made())


def test_a_gradient_without_rows_is_refused() -> None:
    model = network()
    rewriter = Rewriter(model, Foof.made())
    model(images(3, 0)).square().mean().backward()
    rewriter.precondition()
    with pytest.raises(StatisticsError, match="layer '0' has a gradient, but foof saw no rows for it"):
        rewriter.precondition()


def test_attached_to_two_optimizers_each_layer_has_its_own_count() -> None:
    model = network()
    options = {"damping": 0.1, "rho": 0.9, "every": 2}
    compared, rewriter = Compared(model, "foof", options), Rewriter(model, Foof.made(**options))
    first = torch.optim.SGD(model[:4].parameters(), lr=0.0)
    second = torch.optim.SGD(model[4:].parameters(), lr=0.0)
    for optimizer in (first, second):
        rewriter.attach(optimizer)
    for step in range(4):
        model.zero_grad()
        model(images(3, step)).square().mean().backward()
        order = (first, second) if step % 2 else (second, first)
        compared.check(lambda order=order: [optimizer.step() for optimizer in order])


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def gradients_of(model: nn.Sequential) -> list[torch.Tensor]:
    """New gradients of the weights, as they come."""
    model.zero_grad()
    model(torch.randn(5, 3)).square().sum().backward()
    return [layer.weight.grad.clone() for layer in model]


def rewritten(model: nn.Sequential, raw: list[torch.Tensor]) -> list[bool]:
    return [not layer.weight.grad.equal(before) for layer, before in zip(model, raw, strict=True)]


def test_a_frozen_bias_makes_nobody_an_owner() -> None:
    model = two_layers()
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD([model[0].bias, *model[1].parameters()], lr=0.1)
    bnp = BNP(model)
    bnp.attach(optimizer)
    raw = gradients_of(model)
    optimizer.step()
    assert rewritten(model, raw) == [False, True]
    with pytest.raises(ValueError, match="owns neither weight nor trained bias of a layer"):
        bnp.attach(torch.optim.SGD([model[0].bias], lr=0.1))


def test_the_owner_of_a_bias_without_a_gradient_is_told_whose_the_weight_is_not() -> None:
    model = two_layers()
    optimizer = torch.optim.SGD([model[0].bias], lr=0.1)
    BNP(model).attach(optimizer)
    raw = gradients_of(model)
    model[0].bias.grad = None
    with pytest.raises(ValueError, match="owns the bias of layer '0' but not its weight: attach"):
        optimizer.step()
    assert rewritten(model, raw) == [False, False]


def test_whose_the_layers_are_is_found_anew_only_where_a_parameter_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    found, ownership = list[object](), tracker.Ownership
    model = two_layers()
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.0)
    bnp = BNP(model)
    bnp.attach(optimizer)
    monkeypatch.setattr(tracker, "Ownership", lambda *parts: found.append(parts) or ownership(*parts))

    def step(times: int = 1) -> list[bool]:
        for _ in range(times):
            raw = gradients_of(model)
            optimizer.step()
        return rewritten(model, raw)

    assert step(4) == [False, True]
    assert len(found) == 1
    optimizer.add_param_group({"params": list(model[0].parameters())})
    assert step() == [True, True]
    del optimizer.param_groups[0]
    assert step() == [True, False]
    model[0].bias.requires_grad_(False)
    optimizer.param_groups[0]["params"] = [model[0].weight]
    assert step() == [True, False]
    model[0].bias.requires_grad_(True)
    with pytest.raises(ValueError, match="owns the weight of layer '0' but not its bias"):
        step()
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())
    assert step() == [False, False]
    optimizer.param_groups[0]["params"] = [model[0].weight, model[0].bias]
    assert step() == [True, False]
    model[0].bias = nn.Parameter(model[0].bias.detach().clone())
    with pytest.raises(ValueError, match="owns the weight of layer '0' but not its bias"):
        step()
