"""timm's networks by their names."""

from __future__ import annotations

import pytest
import torch

from bnpbench.errors import SuiteError
from bnpbench.networks import timm
from bnpbench.sites import Normalization
from tests.support.kinds import made
from tests.support.others import NEEDS_TIMM

NATIVE = Normalization(native=True)


@NEEDS_TIMM
def test_it_reads_images_of_any_channels_and_takes_options() -> None:
    network = {"kind": "timm", "name": "vit_tiny_patch16_224", "options": {"img_size": 32, "depth": 1}}
    model = made("network", network).built(NATIVE, (1, 32, 32), 7)
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 7)


@NEEDS_TIMM
def test_a_name_that_is_none_is_told_with_the_closest() -> None:
    with pytest.raises(SuiteError, match=r"no network 'resnet81' \(did you mean 'resnet"):
        made("network", {"kind": "timm", "name": "resnet81"}).built(NATIVE, (3, 32, 32), 7)


def test_without_timm_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm, "find_spec", lambda name: None)
    with pytest.raises(SuiteError, match=r"needs timm, which is not installed: pip install 'bnpbench\[models\]'"):
        made("network", {"kind": "timm", "name": "resnet18"}).built(NATIVE, (3, 32, 32), 7)
