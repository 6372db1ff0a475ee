"""What is resident and what is streamed, for every network on every kind of data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bnpbench import load_suite
from bnpbench.datasets.base import DatasetPlugin, DataShape
from bnpbench.errors import SuiteError
from bnpbench.registry import built_in
from bnpbench.training.accounting import costs
from bnpbench.training.examples import Pairs, Resident, examples_of
from bnpbench.training.trainer import Trainer
from tests.support.imagefolders import lay_out
from tests.support.training import trainer

CPU = torch.device("cpu")
NETWORKS = {
    "fc": '{ kind = "fc", hidden = [4] }',
    "cnn": '{ kind = "cnn", channels = [2, 2, 2], dense = 4 }',
    "resnet": '{ kind = "resnet", depth = 8 }',
    "preactivation": '{ kind = "resnet", depth = 8, preactivation = true }',
    "resnet18": '"resnet18"',
}
DATA = {
    **{name: f'"{name}"' for name in ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100")},
    "synthetic": '{ kind = "synthetic", shape = [5], train = 12, test = 6, classes = 3 }',
    "two": '{ kind = "synthetic", shape = [5, 4], train = 12, test = 6, classes = 3 }',
    "images": '{ kind = "synthetic", shape = [2, 20, 24], train = 12, test = 6, classes = 3 }',
    "volumes": '{ kind = "synthetic", shape = [2, 3, 4, 5], train = 12, test = 6, classes = 3 }',
    "imagenet": '{ kind = "imagenet", workers = 0, size = 32 }',
}
IMAGES = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "images", "imagenet")
FITS = {(network, data) for network in NETWORKS for data in IMAGES} | {("fc", data) for data in DATA}
FITS.remove(("cnn", "digits"))  # too small


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("images"), train=4, val=2)


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored data sets of a few random images in their own shape, where their files would be read."""

    def noisy(shape: DataShape) -> Callable[..., tuple[Tensor, ...]]:
        def read(dataset: Any, root: Path) -> tuple[Tensor, ...]:
            make = torch.Generator().manual_seed(0)
            return tuple(
                torch.rand(n, *shape.input, generator=make) if images else torch.arange(n) % shape.classes
                for n in (12, 6)
                for images in (True, False)
            )

        return read

    for name, cls in built_in().kinds(DatasetPlugin).items():
        if name not in ("synthetic", "imagenet") and cls.source != "path":
            shape = cls(kind=name).describe()
            few = DataShape(shape.input, shape.classes, 12, 6)
            monkeypatch.setattr(cls, "found", lambda dataset, root, few=few: few)
            monkeypatch.setattr(cls, "read", noisy(shape))


PAIRS = [(network, data, "none") for network in NETWORKS for data in DATA]
AUGMENTED = [(network, data, "crop-flip") for network in NETWORKS for data in ("synthetic", "images", "imagenet")]


@pytest.mark.parametrize(("network", "data", "augment"), PAIRS + AUGMENTED)
def test_a_pair_is_refused_or_trained(
    network: str, data: str, augment: str, images: Path, noise: None, tmp_path: Path
) -> None:
    (tmp_path / "pair.toml").write_text(
        f'[train]\ndataset = {DATA[data]}\nnetwork = {NETWORKS[network]}\naugment = "{augment}"\nmethod = "bnp"\n'
        'optimizer = { kind = "sgd", lr = 0.01 }\nbatch_size = 4\nepochs = 1\n'
    )
    if (network, data) not in FITS or (augment != "none" and (network == "fc" or data not in IMAGES)):
        with pytest.raises(SuiteError, match="images"):
            load_suite(tmp_path / "pair.toml")
        return
    (cell,) = load_suite(tmp_path / "pair.toml").cells(device="cpu", threads=1)
    root, settings = images, cell.settings
    shape = settings.dataset.found(root)
    found = costs(settings, settings.network.reads(shape.input), shape.classes)
    examples = examples_of(settings, root, CPU)
    trainer = Trainer(cell, examples, CPU)
    assert examples.input_shape == settings.network.reads(shape.input)
    assert sum(p.numel() for p in trainer.model.parameters()) == found.columns.parameters
    row = trainer.epoch()
    assert row["examples"] == 12
    assert row["test_loss"] > 0


@pytest.mark.regression
@pytest.mark.parametrize("batches", [Resident.test, Resident.validation])
def test_what_writes_to_labels_changes_no_later_ones(batches: Callable[[Resident], Pairs | None]) -> None:
    """A metric that did so changed the accuracy of all later epochs, and of other cells."""
    one = trainer(validation=0.2).examples
    assert isinstance(one, Resident)
    ((_, labels),) = batches(one) or ()
    before = labels.clone()
    labels.sub_(1)
    ((_, again),) = batches(one) or ()
    assert again.equal(before)
