"""Networks of installed libraries: their versions, and weights that may have to be fetched."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import hub

from bnpbench import load_suite
from bnpbench.datasets import storage
from bnpbench.errors import DataError, SuiteError
from bnpbench.execution.messages import Preflight
from bnpbench.execution.preflight import preflight
from bnpbench.networks import library
from bnpbench.sites import Normalization
from bnpbench.suite import Suite
from tests.support.kinds import made
from tests.support.others import NEEDS_TIMM

NATIVE = Normalization(native=True)
WEIGHTS: dict[str, dict[str, Any]] = {
    "torchvision": {"kind": "torchvision", "name": "squeezenet1_1", "options": {"weights": "DEFAULT"}},
    "timm": {"kind": "timm", "name": "resnet18", "options": {"pretrained": True}},
}
KINDS = ["torchvision", pytest.param("timm", marks=NEEDS_TIMM)]
SUITE = """
[train]
dataset = { kind = "synthetic", shape = [3, 32, 32], classes = 1000, train = 16, test = 8 }
network = NETWORK
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 8
epochs = 1
method = "native"
"""


@pytest.fixture
def suite(tmp_path: Path) -> Callable[[str], Suite]:
    def load(network: str) -> Suite:
        (tmp_path / "a.toml").write_text(SUITE.replace("NETWORK", network))
        return load_suite(tmp_path / "a.toml")

    return load


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Nothing is in a cache, and no weights are downloaded: the names of those that would be."""
    found = list[str]()
    monkeypatch.setattr(hub, "_hub_dir", str(tmp_path / "hub"))
    hub_of_timm = SimpleNamespace(
        constants=SimpleNamespace(HF_HUB_CACHE=str(tmp_path / "hf")),
        try_to_load_from_cache=lambda *args, **options: None,
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub_of_timm)
    for kind in ("torchvision", "timm"):
        cls = type(made("network", WEIGHTS[kind]))
        monkeypatch.setattr(cls, "download", lambda self: found.append(self.name))
    monkeypatch.delenv(storage.OFFLINE, raising=False)
    return found


@pytest.mark.regression
@pytest.mark.parametrize("kind", KINDS)
def test_another_version_of_the_library_has_another_key(
    kind: str, suite: Callable[[str], Suite], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = f'{{ kind = "{kind}", name = "resnet18" }}'

    def key() -> str:
        (cell,) = suite(network).cells(device="cpu", threads=1)
        return cell.key

    here = key()
    assert here == key()
    monkeypatch.setattr(library, "version", lambda name: "0.1")
    assert here != key()
    (cell,) = suite(network).cells(device="cpu", threads=1)
    assert cell.settings.network.model_dump()["version"] == "0.1"
    with pytest.raises(SuiteError, match=rf"a.toml:\d+: .*{kind} 0.1 is installed, and the suite is of 0.2"):
        suite(f'{{ kind = "{kind}", name = "resnet18", version = "0.2" }}')


@pytest.mark.regression
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_announced_and_not_fetched_offline(
    kind: str, downloads: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = made("network", WEIGHTS[kind])
    network.fetch()
    assert downloads == [network.name]
    assert f"bnpbench: fetching the weights of {network.name} by {kind} to " in capsys.readouterr().err
    with pytest.raises(DataError, match=rf"the weights of {network.name} are not in .* \(offline: nothing is"):
        network.fetch(offline=True)
    monkeypatch.setenv(storage.OFFLINE, "1")
    with pytest.raises(DataError, match="offline: nothing is downloaded"):  # also where a cell makes its network
        network.built(NATIVE, (3, 32, 32), 1000)
    assert len(downloads) == 1


@pytest.mark.regression
@pytest.mark.parametrize("kind", KINDS)
def test_costs_are_counted_without_weights(kind: str, downloads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(storage.OFFLINE, "1")
    with torch.device("meta"):
        assert made("network", WEIGHTS[kind]).built(NATIVE, (3, 32, 32), 1000) is not None
    assert not downloads


@pytest.mark.regression
def test_a_run_fetches_them_before_anything_else(downloads: list[str], suite: Callable[[str], Suite]) -> None:
    network = '{ kind = "torchvision", name = "squeezenet1_1", options = { weights = "DEFAULT" } }'
    cells = suite(network).cells(device="cpu", threads=1)
    with pytest.raises(DataError, match="offline: nothing is downloaded"):
        preflight(Preflight(cells, None, offline=True), lambda message: None)
    preflight(Preflight(cells, None, offline=True, fetch=False), lambda message: None)
    assert not downloads
    preflight(Preflight(cells, None, offline=False), lambda message: None)
    assert downloads == ["squeezenet1_1"]


def test_weights_that_are_there_are_not_fetched(downloads: list[str]) -> None:
    network = made("network", WEIGHTS["torchvision"])
    place = network.cached()
    place.parent.mkdir(parents=True)
    place.touch()
    network.fetch(offline=True)
    made("network", {"kind": "torchvision", "name": "squeezenet1_1"}).fetch(offline=True)
    made("network", {"kind": "torchvision", "name": "resnet81", "options": {"weights": "DEFAULT"}}).fetch(offline=True)
    assert not downloads
