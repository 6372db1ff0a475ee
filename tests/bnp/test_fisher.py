"""The model's own labels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bnpbench.bnp.fisher import drawn_labels, of_class, of_drawn, uniform


def logits(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 2)])
def test_the_passes_of_all_classes_are_the_expectation(shape: tuple[int, ...]) -> None:
    """At the logits themselves: diag(p) - p p^T of every label, and no other label's."""
    z = logits(*shape)
    labels = z.numel() // 4
    total = torch.zeros(labels, 4, 4, dtype=torch.float64)
    for c in range(4):
        (gradient,) = torch.autograd.grad(of_class(z, c), z)
        b = gradient.movedim(1, -1).reshape(-1, 4)
        total += b[:, :, None] * b[:, None, :]
    p = z.detach().softmax(1).movedim(1, -1).reshape(-1, 4)
    torch.testing.assert_close(total, torch.diag_embed(p) - p[:, :, None] * p[:, None, :])


def test_drawn_labels_follow_the_model() -> None:
    z = logits(1, 4).expand(40_000, 4)
    p = z[0].detach().softmax(0)
    for draw in (0, 1, 2**40):
        shares = drawn_labels(z, torch.tensor(draw)).bincount(minlength=4) / 40_000
        assert ((shares - p).abs() < 4 * (p * (1 - p) / 40_000).sqrt()).all()


def test_a_draw_is_the_same_again_and_another_is_another() -> None:
    z = logits(400, 4, 2)
    first, again, other, rank = (drawn_labels(z, torch.tensor(draw)) for draw in (7, 7, 8, 2**40 + 7))
    assert first.shape == (400, 2)
    assert torch.equal(first, again)
    assert 0.1 < (first != other).double().mean() < 0.9
    assert 0.1 < (first != rank).double().mean() < 0.9


def test_sure_labels_are_drawn_as_they_are() -> None:
    z = torch.full((50, 3), -1e4)
    z[range(50), torch.arange(50) % 3] = 0
    assert torch.equal(drawn_labels(z, torch.tensor(3)), torch.arange(50) % 3)
    assert drawn_labels(torch.tensor([[0.0, -1e4]]).expand(99, 2), torch.tensor(3)).max() == 0


def test_the_objective_at_drawn_labels_is_their_loss() -> None:
    z, draw = logits(6, 4), torch.tensor(5)
    torch.testing.assert_close(of_drawn(z, draw), 6 * F.cross_entropy(z, drawn_labels(z, draw)))


def test_uniform_numbers_are_spread_and_unrelated() -> None:
    """Between neighbours in place, in draw, and on two ranks."""
    places = torch.arange(20_000)
    rows = [uniform(torch.tensor(draw), places) for draw in (0, 1, 2, 3, 2**40, 2**40 + 1)]
    for row in rows:
        counts = torch.histc(row, 20, 0, 1)
        assert ((counts - 1000).square() / 1000).sum() < 45  # chi-squared of 19 degrees: one in a thousand is above 44
        assert 0 < row.min() < row.max() < 1
    together = torch.stack([*rows, rows[0].roll(1), rows[0].roll(2)])
    assert (torch.corrcoef(together) - torch.eye(8)).abs().max() < 0.03


def test_uniform_numbers_do_not_move_the_random_stream() -> None:
    before = torch.get_rng_state()
    uniform(torch.tensor(1), torch.arange(3))
    assert torch.equal(before, torch.get_rng_state())


def test_generated_code_draws_the_same() -> None:
    torch._dynamo.reset()
    z, draw = logits(64, 5).detach(), torch.tensor(2**40 + 11)
    compiled = torch.compile(drawn_labels, fullgraph=True)
    assert torch.equal(compiled(z, draw), drawn_labels(z, draw))
