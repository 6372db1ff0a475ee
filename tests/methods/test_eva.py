"""Eva, held to explicit Kronecker products."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.two_sides import CASES, check


def options(**more: Any) -> dict[str, Any]:
    return {"kind": "eva", "rho": 0.3, "damping": 0.05, "every": 1, **more}


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_kronecker_product_of_rank_one(name: str, every: int) -> None:
    check(name, options(every=every))


@pytest.mark.parametrize(("parts", "count"), [(1, "forward"), (2, "backward"), (2, "forward")])
def test_micro_batches_are_one_batch(parts: int, count: str) -> None:
    for name in ("dense", "convolutions", "tokens"):
        check(name, options(), parts, count)
