"""What a method is of itself: what it has, what it lacks, how it is drawn."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pytest
import torch
from torch import nn

from bnpbench import MethodPlugin
from bnpbench.bnp import BNP
from bnpbench.methods.base import MARKERS, Decay, Ink
from bnpbench.methods.preconditioning import Preconditioning, Training
from bnpbench.registry import built_in
from bnpbench.sites import Site


class Layered(MethodPlugin):
    kind: Literal["layered"]

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        return nn.Softplus()


class Penalized(MethodPlugin):
    kind: Literal["penalized"]

    def decays(self, model: nn.Module) -> list[Decay]:
        return [Decay(0.5, list(model.parameters()))]


class Preconditioned(MethodPlugin):
    preconditioned = True
    kind: Literal["preconditioned"]


class WithOptions(MethodPlugin, Preconditioning):
    preconditioned = True
    kind: Literal["with-options"]


class Nothing(MethodPlugin):
    kind: Literal["nothing"]


@pytest.mark.parametrize(
    ("method", "normalizes", "preconditions", "does_nothing"),
    [
        (Layered, True, False, False),
        (Penalized, False, False, False),
        (Preconditioned, False, True, False),
        (WithOptions, False, True, False),
        (Nothing, False, False, True),
    ],
)
def test_what_it_defines_is_what_it_does(
    method: type[MethodPlugin], normalizes: bool, preconditions: bool, does_nothing: bool
) -> None:
    found = method.normalizes(), method.preconditions(), method.does_nothing()
    assert found == (normalizes, preconditions, does_nothing)


def test_a_word_gives_bnp_by_its_defaults_and_options_give_it_by_those() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    by_word = Preconditioned(kind="preconditioned").preconditioner(model, Training(16))
    assert isinstance(by_word, BNP)
    by_word.remove()
    by_options = WithOptions(kind="with-options", rho=0.5, first_layer=False).preconditioner(model, Training(16))
    assert isinstance(by_options, BNP)
    assert (list(by_word.layers), list(by_options.layers)) == (["0", "2"], ["2"])
    assert Nothing(kind="nothing").preconditioner(model, Training(16)) is None


def test_what_it_leaves_out_is_said_by_the_base() -> None:
    plain = Nothing(kind="nothing")
    assert (plain.stands, plain.normalizes_input, plain.shares_statistics) == ("post", False, True)
    assert plain.undivided("conv1", 7) is None
    assert plain.smallest_set(Site("conv1", 7), 1) is None
    assert plain.refuses(Training(16, devices=8, precision="bf16")) is None
    assert "'conv1' sees 1 row of 7 features at batch size 1" in plain.lone_value("'conv1'", 7, 1)
    with pytest.raises(NotImplementedError, match="Nothing puts no layer into a network"):
        plain.layer(7, 0, "x")
    assert type(Layered(kind="layered").synchronized_layer(7, 0, "x")) is nn.Softplus


@pytest.mark.parametrize("center", [0.0, 1.0, -2.5])
def test_a_penalty_is_half_the_squared_distance(center: float) -> None:
    parameters = [nn.Parameter(torch.tensor(values, dtype=torch.float64)) for values in ([[1.0, 2.0]], [3.0])]
    decay = Decay(0.3, parameters, center)
    value = decay()
    assert value.item() == pytest.approx(0.15 * sum((v - center) ** 2 for v in (1.0, 2.0, 3.0)))
    value.backward()
    for parameter in parameters:
        torch.testing.assert_close(parameter.grad, 0.3 * (parameter.detach() - center))


@pytest.mark.parametrize(
    ("entry", "ink"),
    [
        ({"light": "#0072b2", "dark": "#4AA8F0", "marker": "s"}, Ink("#0072b2", "#4AA8F0", "s")),
        ({"light": "#0072b2", "dark": "#4aa8f0", "marker": "s", "more": 1}, Ink("#0072b2", "#4aa8f0", "s")),
        ({"light": "red", "dark": "#4aa8f0", "marker": "s"}, None),
        ({"light": "#0072b2\n", "dark": "#4aa8f0", "marker": "s"}, None),
        ({"light": "#0072b2", "dark": "#4aa8f0", "marker": "$x$"}, None),
        ({"light": "#0072b2", "dark": "#4aa8f0"}, None),
        (None, None),
        (["#0072b2", "#4aa8f0", "s"], None),
    ],
)
def test_an_ink_is_read_where_it_can_be_drawn(entry: Any, ink: Ink | None) -> None:
    assert Ink.read(entry) == ink


def test_every_method_that_ships_can_be_drawn_and_told_apart() -> None:
    inks = [method.ink for method in built_in().kinds(MethodPlugin).values()]
    assert all(ink is not None and ink.marker in MARKERS for ink in inks)
    for part in ("light", "dark"):
        assert len({getattr(ink, part) for ink in inks}) == len(inks)
    assert max(Counter(ink.marker for ink in inks if ink is not None).values()) <= 2  # there are 16


@pytest.mark.regression
@pytest.mark.parametrize("kind", ["native", "bnp+native"])
def test_what_networks_of_others_are_made_with_shows_beside_what_is_put_there(kind: str) -> None:
    inks = {known: method.ink for known, method in built_in().kinds(MethodPlugin).items()}
    marker = getattr(inks.pop(kind), "marker", None)
    assert marker != "."  # hardly seen
    beside = {"native", "bnp+native", "vanilla", "bn", "gn", "ln", "rmsnorm", "dyt", "bnp", "bnp+gn", "bnp+ln"}
    assert beside <= built_in().kinds(MethodPlugin).keys()
    assert marker not in {getattr(ink, "marker", None) for known, ink in inks.items() if known in beside}
