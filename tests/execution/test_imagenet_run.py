"""A folder of JPEGs in ImageNet's layout, from the suite to the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import bnpbench, called, suite
from tests.support.imagefolders import CLASSES, lay_out

SUITE = """
name = "folder"
[train]
dataset = { kind = "imagenet", workers = 1, size = 32 }
network = "resnet18"
optimizer = { kind = "sgd", lr = 0.01, momentum = 0.9 }
augment = "crop-flip"
batch_size = 16
epochs = 1
threads = 1
[sweep]
method = [{ kind = "bnp+gn", groups = 32, label = "bnp+gn" }]
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred and fifty files, grayscale and CMYK ones among them."""
    return lay_out(tmp_path_factory.mktemp("images"), train=30, val=20)


def test_a_folder_of_images_is_trained_on_and_a_damaged_file_is_named(images: Path, tmp_path: Path) -> None:
    path = suite(tmp_path, SUITE, "folder.toml")
    done = bnpbench("run", path, "--data-dir", images, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = called("report", cwd=tmp_path).stdout
    assert "1: 1 ok" in report
    assert "input rate: " in report

    damaged = images / "imagenet/train" / CLASSES[1] / f"{CLASSES[1]}_7.JPEG"
    damaged.write_bytes(damaged.read_bytes()[:300])
    done = bnpbench("run", path, "--fresh", "--data-dir", images, cwd=tmp_path)
    assert done.returncode == 3
    assert damaged.name in done.stdout
    assert "cannot be decoded" in done.stdout
    assert "Traceback" not in done.stderr
