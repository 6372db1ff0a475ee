"""Which training examples a run uses: validation held out first, then the limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bnpbench.errors import DataError
from bnpbench.fields import Over
from bnpbench.reading.parts import split_sizes
from bnpbench.reading.splits import CHUNK, Data, split, standardized
from tests.support.kinds import made

N = 200


def data_of(train_limit: int | None = None, validation: float = 0.0, seed: int = 1) -> Data:
    x = torch.arange(N, dtype=torch.float32).unsqueeze(1)
    return split(x, torch.arange(N), x[:5], torch.arange(5), train_limit=train_limit, validation=validation, seed=seed)


def test_without_limit_and_validation_the_tensors_are_the_data_sets_own() -> None:
    data = data_of()
    assert data.train_y.tolist() == list(range(N))
    assert data.validation_x is data.validation_y is None


@settings(deadline=None, max_examples=50)
@given(limit=st.none() | st.integers(1, 100), validation=st.sampled_from([0.0, 0.1, 0.5]), seed=st.integers(0, 99))
def test_parts_are_disjoint_in_order_and_of_the_sizes_foretold(limit: int | None, validation: float, seed: int) -> None:
    data = data_of(limit, validation, seed)
    train = data.train_y.tolist()
    held_out = [] if data.validation_y is None else data.validation_y.tolist()
    assert (len(train), len(held_out)) == split_sizes(N, limit, validation)
    assert not set(train) & set(held_out)
    assert train == sorted(train)
    assert data.train_x[:, 0].tolist() == train
    if data.validation_x is not None:
        assert data.validation_x[:, 0].tolist() == held_out
    assert data.test_y.tolist() == list(range(5))


def test_the_seed_draws_the_validation_examples_and_nothing_else() -> None:
    one, again, other = data_of(50, 0.1, seed=1), data_of(50, 0.1, seed=1), data_of(50, 0.1, seed=2)
    assert torch.equal(one.validation_y, again.validation_y)  # type: ignore[arg-type]
    assert torch.equal(one.train_y, again.train_y)
    assert not torch.equal(one.validation_y, other.validation_y)  # type: ignore[arg-type]
    assert torch.equal(data_of(50, seed=1).train_y, data_of(50, seed=2).train_y)


def test_a_larger_limit_adds_to_a_smaller_one_and_takes_from_everywhere() -> None:
    small, large = set(data_of(20).train_y.tolist()), set(data_of(100).train_y.tolist())
    assert small < large
    assert 30 < sum(index < N // 2 for index in large) < 70


def test_validation_does_not_depend_on_the_limit() -> None:
    assert torch.equal(data_of(20, 0.25).validation_y, data_of(None, 0.25).validation_y)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"train_limit": 201}, ["201", "200"]),
        ({"train_limit": 181, "validation": 0.1}, ["181", "180", "0.1"]),
        ({"validation": 0.001}, ["0.001", "200"]),
    ],
)
def test_limits_that_do_not_fit_are_errors_with_both_numbers(limits: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(DataError) as error:
        data_of(**limits)
    for word in words:
        assert word in str(error.value)


def images(n: int, seed: int) -> torch.Tensor:
    x = 5 + torch.rand(n, 3, 4, 2, generator=torch.Generator().manual_seed(seed)) * torch.arange(1, 4).view(3, 1, 1)
    x[:, 1, 2, 1] = 0.3  # does not vary
    return x


@pytest.mark.parametrize("mean", ["none", "channel", "pixel"])
@pytest.mark.parametrize("std", ["none", "channel", "pixel"])
def test_standardized_by_what_is_trained_on(mean: Over, std: Over) -> None:
    n = CHUNK + 123  # more than one piece
    train, test, held = images(n, 1), images(40, 2), images(30, 3)
    y = torch.zeros(1, dtype=torch.int64)
    wide = train.double().numpy()
    over = {"channel": (0, 2, 3), "pixel": 0}
    center = 0.0 if mean == "none" else wide.mean(over[mean], keepdims=True)
    scale = 1.0 if std == "none" else (wide - center).std(over[std], keepdims=True)
    wanted = [(x.double().numpy() - center) / np.where(scale < 1e-12, 1.0, scale) for x in (train, test, held)]
    data = standardized(Data(train, y, test, y, held, y), mean, std)
    for found, expected in zip((data.train_x, data.test_x, data.validation_x), wanted, strict=True):
        assert found is not None
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found.numpy(), expected, atol=3e-5)


def test_the_mean_of_each_pixel_of_digits_is_taken_off() -> None:
    options = made("dataset", {"kind": "digits", "mean": "pixel"})
    data, raw = (
        options.tensors(None, validation=0.2, seed=3),
        made("dataset", "digits").tensors(None, validation=0.2, seed=3),
    )
    assert data.validation_x is not None
    assert raw.validation_x is not None
    torch.testing.assert_close(data.train_x.mean(0), torch.zeros(1, 8, 8), atol=1e-6, rtol=0)
    torch.testing.assert_close(data.validation_x, raw.validation_x - raw.train_x.double().mean(0).float())
