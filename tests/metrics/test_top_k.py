"""The share of labels among the likeliest classes."""

from __future__ import annotations

import pytest
import torch

from bnpbench.metrics.top_k import TopK


@pytest.mark.parametrize("shape", [(40,), (8, 5)], ids=["labels", "tokens"])
@pytest.mark.parametrize("k", [1, 3, 9])
def test_it_is_how_often_the_label_is_among_the_first(k: int, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    output, labels = torch.randn(shape[0], 6, *shape[1:]), torch.randint(6, shape)
    above = (output > output.gather(1, labels.unsqueeze(1))).sum(1)
    one = TopK.made(k=k)
    assert one.of_each(output, labels).equal(above < k)
    assert one.value(one.added(None, output, labels)) == (above < k).double().mean()
    if k == 1:
        assert one.of_each(output, labels).equal(output.argmax(1) == labels)


def test_its_name_says_how_many() -> None:
    assert (TopK.made().column, TopK.made(k=3).column) == ("score.top5", "score.top3")


def test_nothing_of_a_batch_is_read_back() -> None:
    """Tensors without values have none to read."""
    output, labels = torch.empty(4, 6, device="meta"), torch.empty(4, dtype=torch.int64, device="meta")
    one = TopK.made()
    assert one.added(one.added(None, output, labels), output, labels).shape == (2,)
