"""timm's networks by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from bnpbench import load_suite
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


@pytest.mark.regression
@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"checkpoint_path": "x.pth"}, "options.checkpoint_path"),
        ({"pretrained": True, "cache_dir": "beside"}, "options.cache_dir"),
        ({"pretrained": True, "pretrained_cfg": {"file": "x.pth"}}, "options.pretrained_cfg.file"),
        ({"pretrained": True, "pretrained_cfg_overlay": {"url": "https://x/y"}}, "options.pretrained_cfg_overlay.url"),
        ({"pretrained": True, "pretrained_cfg_overlay": {"hf_hub_id": "x/y"}}, "pretrained_cfg_overlay.hf_hub_id"),
    ],
)
def test_a_suite_names_no_file_of_weights(options: dict[str, Any], place: str) -> None:
    """timm before 1.0.31 reads it by an unpickler that runs what stands in it."""
    with pytest.raises(ValidationError, match=f"{place}: weights are read from where timm has them"):
        made("network", {"kind": "timm", "name": "resnet18", "options": options})


@pytest.mark.regression
def test_that_is_told_with_its_place_in_the_suite(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        '[train]\ndataset = "cifar10"\noptimizer = { kind = "sgd", lr = 0.1 }\nbatch_size = 8\nepochs = 1\n'
        'method = "native"\n[sweep]\nnetwork.kind = ["timm"]\nnetwork.name = ["resnet18"]\n'
        'network.options = [{ checkpoint_path = "x.pth" }]\n'
    )
    with pytest.raises(SuiteError, match=r"a.toml:\d+: .*network.*checkpoint_path: weights are read from"):
        load_suite(tmp_path / "a.toml")
