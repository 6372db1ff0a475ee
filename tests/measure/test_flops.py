"""Counted operations: equal to Proposition 6 to the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bnpbench.bnp import BNP
from bnpbench.bnp.costs import LayerShape, bnp_flops, predicted, tracked_shapes
from bnpbench.layers import SynchronizedBatchNorm
from bnpbench.measure.flops import PRODUCTS, FlopCount, count_plain_bn, count_plain_bnp

sizes = st.integers(1, 50)


def dense(n: int, n_out: int, batch: int, bias: bool = True) -> LayerShape:
    return LayerShape("dense", n, n_out, 1, 1, batch, batch, 1, bias)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(n=sizes, n_out=sizes, batch=sizes)
def test_counted_equals_proposition_6(n: int, n_out: int, batch: int) -> None:
    assert count_plain_bnp(dense(n, n_out, batch)) == bnp_flops(n, n_out, batch)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    channels=st.integers(1, 6), outputs=sizes, taps=sizes, groups=st.integers(1, 4), examples=sizes, rows=sizes,
    bias=st.booleans(),
)  # fmt: skip
def test_counted_equals_the_formula_for_convolutions(
    channels: int, outputs: int, taps: int, groups: int, examples: int, rows: int, bias: bool
) -> None:
    shape = LayerShape("conv", groups * channels, groups * outputs, taps, groups, examples * rows, examples, 1, bias)
    assert count_plain_bnp(shape) == predicted(shape)


@pytest.mark.parametrize(("batch", "total"), [(16, 2_145_204), (256, 5_286_324), (512, 8_636_852)])
def test_network_of_section_5_1(batch: int, total: int) -> None:
    model = nn.Sequential(nn.Linear(3072, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))
    shapes = tracked_shapes(BNP(model), model, torch.empty(batch, 3072, device="meta"))
    assert sum(map(count_plain_bnp, shapes)) == total


def test_plain_batch_norm_by_autograd() -> None:
    """7nN forward and 19nN backward, and terms in n alone."""
    n = 100
    counts = [count_plain_bn(n, rows) for rows in (16, 256, 512)]
    assert counts[1] - counts[0] == 26 * n * 240
    assert counts[2] - counts[1] == 26 * n * 256
    assert 0 <= counts[0] - 26 * n * 16 < 10 * n


A, B, V = torch.ones(3, 4), torch.ones(4, 5), torch.ones(4)


def attention() -> Tensor:
    query, key = torch.ones(2, 3, 5, 4), torch.ones(2, 3, 7, 4)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, key)[0]


@pytest.mark.parametrize(
    ("compute", "operations"),
    [
        (lambda: A @ B, 2 * 3 * 4 * 5),
        (lambda: A.mv(V), 2 * 3 * 4),
        (lambda: V.dot(V), 0),  # a single number
        (lambda: A + 1, 12),
        (lambda: A.clone().add_(V), 12),
        (lambda: A[:, :1] * V, 12),  # broadcast
        (lambda: A.sum(0), 12),
        (lambda: A.sum(), 0),
        (lambda: A.var(0, correction=0), 48),
        (lambda: torch.addcmul(A, A, V), 24),
        (lambda: A.clone().addr_(torch.ones(3), V, alpha=-1), 24),
        (lambda: A.clone().addr_(torch.ones(3), V, beta=0.5, alpha=-1), 36),
        (lambda: torch.ones(3).addmv_(A, V), 2 * 12 + 3),
        (lambda: A.lerp(A, 0.1), 36),
        (lambda: A.sqrt().reciprocal().clamp(min=1).amax(0).relu(), 0),
        (lambda: A.t().reshape(2, 6).contiguous().to(torch.float64)[:1].index_select(1, torch.tensor([0])), 0),
        (lambda: torch._foreach_add([A, V], 1.0), 16),
        (lambda: torch.nn.functional.gelu(A), 5 * 12),
        (lambda: torch.nn.functional.gelu(A, approximate="tanh"), 9 * 12),
        (lambda: torch.nn.functional.silu(A), 2 * 12),
        (lambda: A.std(0), 48),
        (lambda: A.std(), 0),  # a single number
        (lambda: torch.std_mean(A, 0), 48),
        (lambda: torch.ops.aten.gelu_backward(A, A), 11 * 12),
        (lambda: torch.ops.aten.gelu_backward(A, A, approximate="tanh"), 18 * 12),
        (lambda: torch.ops.aten.silu_backward(A, A), 6 * 12),
        (lambda: attention(), 2 * 3 * 5 * 7 * (2 * 4 + 4 + 2 * 4)),  # scores, softmax, output
    ],
)
def test_rules(compute: Callable[[], Tensor], operations: int) -> None:
    with FlopCount() as flops:
        compute()
    assert flops.total == operations
    assert flops.uncounted == {}
    assert sum(flops.by_operator.values()) == operations


def test_operators_without_a_formula_are_listed() -> None:
    with FlopCount() as flops:
        torch.special.i0(A)
        torch.special.i0(A)
        A.erfinv()
    assert flops.total == 0
    assert flops.uncounted == {"aten.i0": 2, "aten.erfinv": 1}


def test_a_training_step_on_meta_has_a_formula_for_everything() -> None:
    with torch.device("meta"):
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.GroupNorm(2, 8), nn.Flatten(),
            nn.Linear(200, 20), nn.LayerNorm(20), nn.Dropout(), nn.Linear(20, 10),
        )  # fmt: skip
        images, labels = torch.empty(4, 3, 12, 12), torch.empty(4, dtype=torch.int64)
    bnp = BNP(model)
    for optimizer in (
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4),
        torch.optim.Adam(model.parameters()),
    ):
        totals = []
        for preconditioned in (False, True, True):
            with FlopCount() as flops:
                nn.functional.cross_entropy(model(images), labels).backward()
                if preconditioned:
                    bnp.precondition()
                optimizer.step()
            assert flops.uncounted == {}
            totals.append(flops.total)
            model.zero_grad()
            bnp.precondition()  # without gradients it forgets the rows
        assert totals[0] < totals[2]


def test_executed_preconditioning_is_close_to_the_published_count() -> None:
    """In place and with 1/q^2 folded in it costs a little less than Algorithm 2 as written."""
    model = nn.Linear(3072, 100)
    bnp = BNP(model)
    counts = []
    for preconditioned in (False, True):
        model.zero_grad()
        with FlopCount() as flops:
            model(torch.ones(16, 3072)).sum().backward()
            if preconditioned:
                bnp.precondition()
        counts.append(flops.total - (0 if preconditioned else 4 * 3072 * 16))  # statistics are taken either way
    assert 0.9 * bnp_flops(3072, 100, 16) < counts[1] - counts[0] <= 1.01 * bnp_flops(3072, 100, 16)


def counted(layer: nn.Module, counter: Any, *, of_input: bool = True) -> tuple[int, int]:
    """Operations of the output, and of the gradients."""
    images = torch.randn(4, 8, 6, 7, requires_grad=of_input)
    totals = []
    with FlopCounterMode(display=False, custom_mapping=counter) as flops:
        output = layer(images)
        totals.append(flops.get_total_flops())
        output.backward(torch.ones_like(output))
        totals.append(flops.get_total_flops() - totals[0])
    return totals[0], totals[1]


@pytest.mark.regression
@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("of_input", [True, False])
def test_each_gradient_takes_as_much_as_the_output(kind: type[nn.Module], groups: int, of_input: bool) -> None:
    """Torch counts a grouped convolution's weight gradient as if every output saw every input channel."""
    layer = kind(8, 16, 3, stride=2, padding=1, groups=groups, bias=False)
    forward, backward = counted(layer, PRODUCTS, of_input=of_input)
    positions = 3 * 4 if kind is nn.Conv2d else 6 * 7
    assert forward == 2 * 4 * positions * 16 * 8 * 9 // groups
    assert backward == (1 + of_input) * forward
    if groups == 1:
        assert (forward, backward) == counted(layer, {}, of_input=of_input)


@pytest.mark.regression
@pytest.mark.parametrize(("train", "each"), [(True, 9), (False, 5)])
def test_batch_norm_through_fixed_statistics_costs_less(train: bool, each: int) -> None:
    x, vector = torch.randn(6, 3), torch.ones(3)
    with FlopCount() as flops:
        torch.ops.aten.native_batch_norm_backward(
            x, x, vector, vector, vector, vector, vector, train, 1e-5, [True, True, True]
        )
    assert flops.total == each * 18


@pytest.mark.regression
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_batch_norm_in_eval_mode_is_a_multiply_add_an_element(device: str) -> None:
    """Batch normalization by fixed statistics counted nothing."""
    layer = nn.BatchNorm1d(5, device=device).eval()
    with torch.no_grad(), FlopCount() as flops:
        layer(torch.ones(7, 5, device=device))
    assert (flops.total, flops.uncounted) == (2 * 7 * 5, {})


@pytest.mark.regression
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_synchronized_batch_norm_has_a_formula_for_everything(device: str) -> None:
    layer, x = SynchronizedBatchNorm(5).to(device), torch.ones(7, 5, device=device, requires_grad=True)
    with FlopCount() as flops:
        y = layer(x)
    assert flops.uncounted == {}
    assert flops.by_operator["aten._native_batch_norm_legit_no_training"] == 2 * 7 * 5
    with FlopCount() as flops:
        y.backward(torch.ones(7, 5, device=device))
    assert flops.uncounted == {}
