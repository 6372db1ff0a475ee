"""What the vision transformer and the language model share."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from bnpbench.sites import Normalization, Site
from tests.support.kinds import made

SMALL = {"kind": "vit", "width": 16, "depth": 2, "heads": 2}


@pytest.mark.parametrize("norm", ["first", "last"])
def test_sites_are_those_that_building_asks_for(norm: str) -> None:
    network, asked = made("network", {**SMALL, "norm": norm}), list[Site]()

    def make(features: int, spatial_dims: int, site: str) -> nn.Module:
        asked.append(Site(site, features, 16))
        assert spatial_dims == 0
        return nn.Identity()

    network.built(Normalization("post", make), (3, 16, 16), 10)
    assert asked == list(network.sites((3, 16, 16), "post"))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"heads": 3}, "3 heads do not divide a width of 16"), ({"width": 15}, "multiple of 2"), ({"depth": 0}, "depth")],
)
def test_sizes_that_do_not_fit_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made("network", {**SMALL, **options})


def test_options_are_shared() -> None:
    assert made("network", "gpt").model_dump().keys() == made("network", "vit").model_dump().keys() - {"patch"}
