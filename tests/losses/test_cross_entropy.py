"""The loss that is taken unless a suite says otherwise."""

from __future__ import annotations

import pytest
import torch

from bnpbench.suite import Cell, Settings
from tests.support.kinds import made
from tests.support.training import trainer


@pytest.mark.parametrize("shape", [(6,), (4, 5)], ids=["labels", "tokens"])
def test_it_is_the_negative_logarithm_of_softmax(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    output = torch.randn(shape[0], 3, *shape[1:], dtype=torch.float64)
    labels = torch.randint(3, shape)
    each = -(output.exp() / output.exp().sum(1, keepdim=True)).log().gather(1, labels.unsqueeze(1)).squeeze(1)
    loss = made("loss", "cross-entropy")
    torch.testing.assert_close(loss.of_each(output, labels), each)
    torch.testing.assert_close(loss.mean(output, labels), each.mean())
    torch.testing.assert_close(loss.total(output, labels), each.sum())
    spread = -output.log_softmax(1).mean(1)
    torch.testing.assert_close(loss.mean(output, labels, 0.3), (0.7 * each + 0.3 * spread).mean())


def test_it_is_in_no_key() -> None:
    settings = trainer().settings
    written = Settings.model_validate({**settings.model_dump(), "loss": {"kind": "cross-entropy"}})
    assert Cell(written).key == Cell(settings).key
    assert "loss" not in Cell(settings).canonical
