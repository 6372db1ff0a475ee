"""BNP by a method's options: which form, which layers, what an ablation leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bnpbench.suite import Settings
from bnpbench.training import models
from bnpbench.training.accounting import costs


def cell(form: str, **changes: Any) -> Settings:
    settings = {
        "dataset": {"kind": "synthetic", "shape": (40,), "train": 30, "test": 10, "classes": 5},
        "network": {"kind": "fc", "hidden": (30,)},
        "method": {"kind": "bnp", "form": form},
        "optimizer": {"kind": "sgd", "lr": 0.1},
        "batch_size": 4,
        "epochs": 1,
        "device": "cpu",
        "engine": "compiled",
        "threads": 1,
    }
    return Settings.model_validate(settings | changes)


def gradients(settings: Settings) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    model = models.build_model(settings, (40,), 5, generator)
    bnp, penalty = models.preconditioner(settings, model), models.penalty(settings, model)
    assert bnp is not None
    assert penalty is not None
    (model(torch.randn(4, 40, generator=generator)).square().mean() + penalty()).backward()
    bnp.precondition()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def form_of(settings: Settings) -> str | None:
    return costs(settings, (40,), 5).columns.bnp_form


@pytest.mark.regression
def test_both_forms_precondition_the_penalty() -> None:
    l2 = {"weight_decay": {"value": 0.5, "where": "l2"}}
    for auto, plain in zip(gradients(cell("auto", **l2)), gradients(cell("plain", **l2)), strict=True):
        torch.testing.assert_close(auto, plain)


@pytest.mark.regression
def test_the_form_of_a_cell_is_the_one_that_runs() -> None:
    assert form_of(cell("auto")) == "lean"
    assert form_of(cell("auto", weight_decay={"value": 0.5, "where": "optimizer"})) == "lean"
    assert form_of(cell("auto", weight_decay={"value": 0.0, "where": "l2"})) == "lean"
    assert form_of(cell("auto", weight_decay={"value": 0.5, "where": "l2"})) == "plain"
    assert form_of(cell("auto", precision="bf16")) == "plain"
