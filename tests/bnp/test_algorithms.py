"""The functions alone, against explicit matrices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bnpbench.bnp import algorithms as a
from tests.support.oracle import assert_close, precondition


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("scale", [1.0, 3.5, torch.tensor(3.5, dtype=torch.float64)])
@pytest.mark.parametrize("bias", [True, False])
def test_precondition_dense(bias: bool, scale: float | Tensor) -> None:
    mean, variance = draw(7), draw(7).square()
    weight_grad, bias_grad = draw(4, 7), draw(4) if bias else None
    kept = weight_grad.clone(), None if bias_grad is None else bias_grad.clone()
    weight, new_bias = a.precondition_dense(weight_grad, bias_grad, mean, a.damped_variance(variance), scale)
    expected, expected_bias, size = precondition(weight_grad, bias_grad, mean, variance, 1e-2, 1e-4, float(scale))
    assert_close(weight, expected, 1e-12 * size)
    if bias:
        assert_close(new_bias, expected_bias, 1e-12 * size)
    assert weight_grad.equal(kept[0])
    assert bias_grad is None or bias_grad.equal(kept[1])


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "neither"])
@pytest.mark.parametrize("scale", [3.5, torch.tensor(3.5, dtype=torch.float64)])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_precondition_conv(bias: bool, groups: int, scale: float | Tensor, layout: str) -> None:
    mean, variance = draw(2 * groups), draw(2 * groups).square()
    weight_grad, bias_grad = draw(4 * groups, 2, 3, 2), draw(4 * groups) if bias else None
    if layout == "channels last":
        weight_grad = weight_grad.contiguous(memory_format=torch.channels_last)
    elif layout == "neither":
        weight_grad = draw(2, 3, 2, 4 * groups).permute(3, 0, 1, 2)
    damped = a.damped_variance(variance, groups=groups)
    weight, new_bias = a.precondition_conv(weight_grad, bias_grad, mean, damped, scale, groups)
    pieces = zip(
        weight_grad.chunk(groups),
        [None] * groups if bias_grad is None else bias_grad.chunk(groups),
        mean.chunk(groups),
        variance.chunk(groups),
        strict=True,
    )
    weights, biases, sizes = zip(*(precondition(*piece, 1e-2, 1e-4, 3.5) for piece in pieces), strict=True)
    assert_close(weight, torch.cat(weights), 1e-12 * max(sizes))
    if bias:
        assert_close(new_bias, torch.cat(biases), 1e-12 * max(sizes))


@pytest.mark.parametrize(
    ("shape", "channel_dim"),
    [((6, 5), -1), ((6, 5), 1), ((2, 3, 5), -1), ((2, 5, 3), 1), ((2, 5, 3, 4), 1), ((2, 5, 3, 4, 2), 1), ((9, 1), -1)],
)
@pytest.mark.parametrize("layout", ["contiguous", "channels last"])
def test_batch_statistics(shape: tuple[int, ...], channel_dim: int, layout: str) -> None:
    h = draw(*shape)
    if layout == "channels last" and channel_dim == 1:
        h = h.movedim(1, -1).contiguous().movedim(-1, 1)
    rows = h.movedim(channel_dim, -1).reshape(-1, shape[channel_dim])
    mean, variance = a.batch_statistics(h, channel_dim=channel_dim)
    torch.testing.assert_close(mean, rows.sum(0) / len(rows), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(variance, ((rows - mean) ** 2).sum(0) / len(rows), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("shape", [(1, 5), (5,), (1, 1, 5)])
def test_statistics_of_a_single_row(shape: tuple[int, ...]) -> None:
    h, running_mean = draw(*shape), draw(5)
    mean, variance = a.batch_statistics(h, running_mean=running_mean)
    assert mean.equal(h.flatten())
    torch.testing.assert_close(variance, (h.flatten() - running_mean) ** 2)
    assert not a.batch_statistics(h)[1].any()


@pytest.mark.parametrize("shape", [(16, 3, 50, 50), (37, 5, 360)])
def test_large_planes(shape: tuple[int, ...]) -> None:
    h = draw(*shape)
    h[:, 1] = 1e4 + 1e-3 * h[:, 1]
    assert h.numel() >= 2**16  # from there on, with 16 examples, each position is a column of its own first
    rows = h.movedim(1, -1).reshape(-1, shape[1])
    mean, variance = a.batch_statistics(h, channel_dim=1)
    torch.testing.assert_close(mean, rows.mean(0), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(variance, rows.var(0, correction=0), rtol=1e-8, atol=0)


@pytest.mark.parametrize("rows", [2, 7, 8, 9, 60])
def test_statistics_while_compiling(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)
    h = draw(rows, 4)
    h[:, 1] = 1e4 + 1e-3 * h[:, 1]
    h[:, 2] = 7.0
    mean, variance = a.batch_statistics(h)
    torch.testing.assert_close(mean, h.mean(0), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(variance, h.var(0, correction=0), rtol=1e-8, atol=0)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_vector_in_memory_is_itself(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vector = draw(length)
    assert a.in_memory(vector) is vector
    monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)
    assert a.in_memory(vector).equal(vector)


def test_long_inputs_are_taken_in_pieces() -> None:
    h = draw(3 * a._ROWS_PER_PASS + 5, 2)  # no pass takes all of it
    mean, variance = a.batch_statistics(h)
    torch.testing.assert_close(mean, h.mean(0), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(variance, h.var(0, correction=0), rtol=1e-12, atol=0)


def test_pooling_sets_of_rows() -> None:
    sets = [5 + draw(count, 3) for count in (1, 4, 2)]
    means = torch.stack([rows.mean(0) for rows in sets])
    variances = torch.stack([rows.var(0, correction=0) for rows in sets])
    rows = torch.cat(sets)
    for counts in ([1, 4, 2], torch.tensor([1, 4, 2])):
        mean, variance = a.pool_statistics(means, variances, counts)
        torch.testing.assert_close(mean, rows.mean(0), rtol=1e-13, atol=0)
        torch.testing.assert_close(variance, rows.var(0, correction=0), rtol=1e-13, atol=0)


def test_running_values_are_updated_in_place() -> None:
    running, batch = draw(3), draw(3)
    expected = 0.9 * running + 0.1 * batch
    assert a.update_running(running, batch, 0.9) is running
    torch.testing.assert_close(running, expected)


def test_damping_takes_the_largest_variance_of_each_group() -> None:
    variance = torch.tensor([1.0, 100.0, 2.0, 0.0])
    torch.testing.assert_close(a.damped_variance(variance, 0.01, 0.5), variance + 1.5)
    expected = torch.tensor([2.5, 101.5, 2.52, 0.52])
    torch.testing.assert_close(a.damped_variance(variance, 0.01, 0.5, groups=2), expected)


@pytest.mark.parametrize("batch_size", [1, 100, 3072, 5000])
def test_scales_are_squares(batch_size: int) -> None:
    dense = max(3072 / batch_size, 1)
    conv = max(27 / batch_size, 32.0)
    assert a.dense_scale(3072, batch_size) == pytest.approx(dense)
    assert a.conv_scale(27, batch_size, 1024) == pytest.approx(conv)
    device_size, positions = torch.tensor(float(batch_size)), torch.tensor(1024.0)
    assert float(a.dense_scale(3072, device_size)) == pytest.approx(dense)
    for arguments in ((device_size, positions), (device_size, 1024), (batch_size, positions)):
        assert float(a.conv_scale(27, *arguments)) == pytest.approx(conv)


@pytest.mark.parametrize("bias", [True, False])
def test_nothing_is_read_back(bias: bool) -> None:
    """On ``meta`` any look at a value raises."""
    with torch.device("meta"):
        h, count, bias_grad = torch.empty(4, 6, 3, 3), torch.empty(()), torch.empty(8) if bias else None
        running = torch.empty(6), torch.empty(6)
        for value, batch in zip(running, a.batch_statistics(h, channel_dim=1), strict=True):
            a.update_running(value, batch, 0.99)
        damped = a.damped_variance(running[1], groups=2)
        for scale in (a.conv_scale(27, count, count), a.dense_scale(6, count)):
            weight, _ = a.precondition_conv(torch.empty(8, 3, 3, 3), bias_grad, running[0], damped, scale, groups=2)
            assert weight.shape == (8, 3, 3, 3)
        a.precondition_dense(torch.empty(8, 6), bias_grad, running[0], damped, a.dense_scale(6, count))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_passes_through(value: float) -> None:
    h = draw(4, 3)
    h[1, 1] = value
    mean, variance = a.batch_statistics(h)
    running_mean, running_var = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    a.update_running(running_mean, mean, 0.99)
    a.update_running(running_var, variance, 0.99)
    damped = a.damped_variance(running_var)
    weight, bias = a.precondition_dense(draw(2, 3), draw(2), running_mean, damped, 1.0)
    for tensor in (mean[1], running_mean[1], running_var[1], weight[:, 1], bias):
        assert not tensor.isfinite().any()
