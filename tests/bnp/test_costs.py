"""The formulas, at the values that the paper's section 5.1 network gives."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from bnpbench.bnp import BNP
from bnpbench.bnp import costs as c
from bnpbench.errors import StatisticsError

WIDTHS = [3072, 100, 100, 10]


def section_5_1() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3072, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))


def test_proposition_6() -> None:
    assert [c.bnp_flops(n, n_out, 16) for n, n_out in pairwise(WIDTHS)] == [
        2_064_584,
        67_400,
        13_220,
    ]


@pytest.mark.parametrize(
    ("batch", "bnp", "bn"), [(16, 2_145_204, 103_200), (256, 5_286_324, 1_639_200), (512, 8_636_852, 3_277_600)]
)
def test_network_of_section_5_1(batch: int, bnp: int, bn: int) -> None:
    model = section_5_1()
    shapes = c.tracked_shapes(BNP(model), model, torch.empty(batch, 3072, device="meta"))
    assert sum(map(c.predicted, shapes)) == bnp
    assert sum(c.bnp_flops(n, n_out, batch) for n, n_out in pairwise(WIDTHS)) == bnp
    assert 2 * c.bn_flops(100, batch) == bn


def test_bn_is_cheaper_below_the_crossing() -> None:
    """28N < 6n' by the paper's count, 11N < 6n' by the usual backward, for large n."""
    for count, factor in ((c.bn_flops, 28), (c.usual_bn_flops, 11)):
        n, n_out = 10**6, 28 * 11 * 10
        crossing = 6 * n_out // factor
        assert count(n, crossing - 2) < c.bnp_flops(n, n_out, crossing - 2)
        assert count(n, crossing + 2) > c.bnp_flops(n, n_out, crossing + 2)
    assert c.usual_bn_flops(100, 16) == 15 * 100 * 16 + 8 * 100


def test_lean_form() -> None:
    assert c.lean_bnp_flops(3072, 100, 1) == 52_624
    assert c.bnp_flops(3072, 100, 1) == 1_880_264
    cheaper = [batch for batch in range(1, 400) if c.lean_bnp_flops(3072, 100, batch) < c.bnp_flops(3072, 100, batch)]
    assert cheaper == list(range(1, 148))


def test_convolution() -> None:
    """4cNrs + 6(c/groups)k^2c' + 2c' + 8c, with r, s of the input."""
    model = nn.Sequential(nn.Conv2d(6, 4, (3, 2), stride=2, padding=1, groups=2), nn.BatchNorm2d(4))
    (shape,) = c.tracked_shapes(BNP(model), model, torch.empty(5, 6, 8, 9, device="meta"))
    assert shape == c.LayerShape("0", 6, 4, 6, 2, rows_in=5 * 72, examples=5, positions=4 * 5, bias=True)
    expected = 4 * 6 * 5 * 72 + 6 * 3 * 6 * 4 + 2 * 4 + 8 * 6
    assert c.predicted(shape) == c.conv_bnp_flops(6, 4, taps=6, rows=5 * 72, groups=2) == expected


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared, self.unused = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)

    def forward(self, h: Tensor) -> Tensor:
        return self.shared(self.shared(h))


def test_shapes_add_up_over_calls_and_leave_the_model_alone() -> None:
    model = nn.Sequential(Twice(), nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(12, 2))
    bnp = BNP(model)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    shapes = c.tracked_shapes(bnp, model, torch.empty(5, 3, 4, device="meta"))
    assert [(s.name, s.rows_in, s.examples, s.positions, s.bias) for s in shapes] == [
        ("0.shared", 30, 30, 1, False), ("3", 5, 5, 1, True),
    ]  # fmt: skip
    assert all(value.equal(before[key]) and value.device.type == "cpu" for key, value in model.state_dict().items())
    model[3].weight.grad = torch.ones(2, 12)
    with pytest.raises(StatisticsError, match="saw no rows"):
        bnp.precondition()


def test_shapes_of_a_model_that_is_on_meta() -> None:
    with torch.device("meta"):
        model, example = section_5_1(), torch.empty(16, 3072)
    assert sum(map(c.predicted, c.tracked_shapes(BNP(model), model, example))) == 2_145_204
