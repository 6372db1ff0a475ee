"""K-FAC, held to explicit Kronecker products."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.two_sides import CASES, check

FISHERS = ["sampled", "exact", "empirical"]


def options(fisher: str, **more: Any) -> dict[str, Any]:
    return {"kind": "kfac", "fisher": fisher, "rho": 0.6, "damping": 0.02, "every": 2, **more}


@pytest.mark.parametrize("fisher", FISHERS)
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_kronecker_product(name: str, fisher: str) -> None:
    check(name, options(fisher))


@pytest.mark.parametrize("fisher", FISHERS)
@pytest.mark.parametrize(("parts", "count"), [(1, "forward"), (2, "backward"), (2, "forward")])
def test_micro_batches_are_one_batch(fisher: str, parts: int, count: str) -> None:
    for name in ("dense", "convolutions", "tokens"):
        check(name, options(fisher), parts, count)
