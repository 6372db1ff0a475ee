"""How many examples are trained on and held out."""

from __future__ import annotations

import pytest

from bnpbench.reading.parts import split_sizes


@pytest.mark.parametrize(
    ("train", "limit", "validation", "sizes"),
    [
        (200, None, 0.0, (200, 0)),
        (200, 50, 0.0, (50, 0)),
        (200, 500, 0.0, (200, 0)),
        (200, None, 0.1, (180, 20)),
        (200, 50, 0.1, (50, 20)),  # held out first: it does not depend on the limit
        (200, 190, 0.1, (180, 20)),
        (1437, None, 0.1, (1293, 144)),  # 143.7, rounded
        (10, None, 0.04, (10, 0)),
        (10, None, 0.06, (9, 1)),
    ],
)
def test_a_share_is_held_out_first_and_the_rest_limited(
    train: int, limit: int | None, validation: float, sizes: tuple[int, int]
) -> None:
    assert split_sizes(train, limit, validation) == sizes
