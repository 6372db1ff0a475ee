"""What BNP and other preconditioners share: whose a layer is, whose step it is, what is refused."""

from __future__ import annotations

import gc

import pytest
import torch

from bnpbench import BNP
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
