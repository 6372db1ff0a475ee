"""Methods that rewrite gradients by sums over rows: options, costs, where they apply."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from bnpbench import FlopCount, GradientPlugin, MethodPlugin, Training
from bnpbench.errors import NotApplicable
from bnpbench.registry import built_in

KINDS = [kind for kind, cls in built_in().kinds(MethodPlugin).items() if issubclass(cls, GradientPlugin)]


def made(kind: str, **options: Any) -> GradientPlugin:
    method = built_in().kinds(MethodPlugin)[kind].made(**options)
    assert isinstance(method, GradientPlugin)
    return method


def network(bias: bool = True) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(8, 16, 3, groups=2, bias=bias), nn.ReLU(), nn.Flatten(), nn.Linear(256, 100, bias=bias)
    )


def test_which_there_are() -> None:
    assert {"bnp-full", "eva-f", "foof", "mac"} <= set(KINDS)


@pytest.mark.parametrize("kind", ["bnp-full", "eva-f", "foof", "mac"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("every", [1, 50])
def test_the_formula_of_the_operations_is_what_the_code_does(kind: str, bias: bool, every: int) -> None:
    """Up to what a formula leaves out: single vectors and rows of a bias."""
    with torch.device("meta"):
        found = made(kind, every=every).published(network(bias), torch.empty(32, 8, 6, 6))
    assert found.counted is not None
    assert found.predicted == pytest.approx(found.counted, rel=5e-3)


@pytest.mark.parametrize("kind", ["bnp-full", "eva-f", "foof", "mac"])
def test_a_step_executes_what_is_counted(kind: str) -> None:
    """On average over those from one refresh to the next."""
    with torch.device("meta"):
        model, batch = network(), torch.empty(32, 8, 6, 6)
        method = made(kind, every=2)
        counted = method.published(model, batch).counted
        rewriter, total = method.preconditioner(model, Training(32)), 0
        for _ in range(2):
            model.eval()
            with FlopCount() as without:
                model(batch)
            model.train()
            model.zero_grad()
            with FlopCount() as forward:  # which takes the sums over rows
                output = model(batch)
            output.sum().backward()
            with FlopCount() as step:
                rewriter.precondition()
            total += forward.total - without.total + step.total
    assert total / 2 == pytest.approx(counted, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_left_alone_by_options(kind: str) -> None:
    model = network()
    rewriter = made(kind, first_layer=False).preconditioner(model, Training(4))
    assert rewriter.layers == ("3",)
    assert rewriter.skipped["0"] == "the first layer"
    rewriter.remove()
    rewriter = made(kind, layers=("!3",)).preconditioner(model, Training(4))
    assert rewriter.layers == ("0",)
    assert rewriter.skipped["3"] == "left out by layers"
    rewriter.remove()
    with pytest.raises(NotApplicable, match="no layer is preconditioned"):
        made(kind, layers=("none",)).preconditioner(model, Training(4))


def test_sites_are_not_taken_twice() -> None:
    class Both(GradientPlugin):
        kind: Literal["both"]

        def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
            return nn.BatchNorm1d(features)

    misfit = Both.made(sites="keep").refuses(Training(4))
    assert misfit is not None
    assert misfit.option == "sites"
    assert Both.made().refuses(Training(4)) is None
    assert made("foof", sites="keep").refuses(Training(4)) is None


def test_scaled_gradients_are_refused_to_whom_looks_at_them() -> None:
    class Looks(GradientPlugin):
        gradients = True
        kind: Literal["looks"]

    class Blind(GradientPlugin):
        kind: Literal["blind"]

        def rewrite(self, layer: Any, state: Any, gradient: Tensor) -> Tensor:
            return gradient

    misfit = Looks.made().refuses(Training(4, precision="fp16"))
    assert misfit is not None
    assert "which fp16 scales with the loss" in misfit.reason
    assert Looks.made().refuses(Training(4, precision="bf16")) is None
    assert Blind.made().refuses(Training(4, precision="fp16")) is None
    assert Looks.does_nothing()
    assert not Blind.does_nothing()
