"""Arrays of a file: every form that is taken, and every fault with what to do."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnpbench.datasets.npz import NAMES
from bnpbench.errors import DataError
from tests.support.command import called
from tests.support.kinds import made
from tests.support.own_data import arrays, save, suite


def npz(path: Path, **options: Any) -> Any:
    return made("dataset", {"kind": "npz", "path": path.name, **options}).located(path.parent)


def read(path: Path, **options: Any) -> Any:
    return npz(path, **options).tensors(Path("nowhere"))


@pytest.mark.parametrize(
    ("shape", "input_shape", "axes"),
    [
        ((6,), (6,), (0, 1)),
        ((8, 7), (1, 8, 7), (0, 1, 2)),
        ((8, 7, 3), (3, 8, 7), (0, 3, 1, 2)),
        ((8, 7, 1), (1, 8, 7), (0, 3, 1, 2)),
        ((3, 8, 7), (3, 8, 7), (0, 1, 2, 3)),
    ],
)
def test_images_and_rows_of_features(
    shape: tuple[int, ...], input_shape: tuple[int, ...], axes: tuple[int, ...], tmp_path: Path
) -> None:
    path = save(tmp_path / "data.npz", shape=shape)
    described, data = npz(path).describe(), read(path)
    assert (described.input, described.classes, described.train, described.test) == (input_shape, 3, 30, 12)
    expected = arrays(shape=shape)["x_train"].transpose(axes).reshape(30, *input_shape) / 255
    torch.testing.assert_close(data.train_x, torch.tensor(expected, dtype=torch.float32))
    assert data.test_y.tolist() == [n % 3 for n in range(12)]
    assert (data.test_x.dtype, data.test_y.dtype) == (torch.float32, torch.int64)


def test_numbers_that_are_no_bytes_stay_as_they_are(tmp_path: Path) -> None:
    values = np.linspace(-3, 7, 30 * 4).reshape(30, 4).astype(">f8")
    data = read(save(tmp_path / "data.npz", shape=(4,), x_train=values, x_test=values[:12]))
    torch.testing.assert_close(data.train_x, torch.tensor(values.astype("f4")))


def test_labels_may_be_a_column(tmp_path: Path) -> None:
    labels = np.arange(30, dtype=np.uint8)[:, None] % 3
    assert read(save(tmp_path / "data.npz", y_train=labels)).train_y.tolist() == [n % 3 for n in range(30)]


@pytest.mark.parametrize("number", range(len(NAMES["x_train"])))
def test_names_of_others_are_taken(number: int, tmp_path: Path) -> None:
    found = {NAMES[role][number]: array for role, array in arrays().items()}
    np.savez(tmp_path / "data.npz", val_images=np.zeros(3), **found)
    assert len(read(tmp_path / "data.npz").train_x) == 30


def test_where_the_channels_are_may_be_said(tmp_path: Path) -> None:
    path = save(tmp_path / "data.npz", shape=(3, 5, 3))
    with pytest.raises(DataError, match='layout = "nhwc" or "nchw"'):
        read(path)
    assert npz(path, layout="nhwc").describe().input == (3, 3, 5)
    assert read(path, layout="nchw").train_x.shape == (30, 3, 5, 3)


class Touch:
    """What unpickling it does."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("touched"),)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "objects": ({"x_train": np.array([Touch()] * 30, dtype=object)}, "an array of numbers"),
    "object labels": ({"y_test": np.array([Touch()] * 12, dtype=object)}, "an array of numbers"),
    "texts": ({"y_train": np.array(["a"] * 30)}, "an array of numbers"),
    "lengths": ({"y_train": np.arange(29) % 3}, "x_train has 30 examples and y_train 29 labels"),
    "shapes": ({"x_test": np.zeros((12, 7, 7))}, "8 x 8 in x_train and 7 x 7 in x_test"),
    "one-hot": ({"y_train": np.eye(3, dtype=int)[np.arange(30) % 3]}, "np.argmax"),
    "fractions": ({"y_train": np.arange(30) % 3 + 0.0}, "one whole number an example"),
    "from one on": ({"y_train": np.arange(30) % 3 + 1}, "0 is not among them; labels are 0, 1, 2"),
    "a gap": ({"y_train": np.arange(30) % 3 * 2}, "1 is not among them"),
    "negative": ({"y_train": np.arange(30) % 3 - 1}, "-1 is among them"),
    "one class": ({"y_train": np.zeros(30, int), "y_test": np.zeros(12, int)}, "two to tell apart"),
    "unknown label": ({"y_test": np.arange(12) % 4}, "y_test has the label 3, which y_train has not"),
    "nothing": ({"x_train": np.zeros((0, 8, 8)), "y_train": np.zeros(0, int)}, "x_train holds no examples"),
    "nothing to test on": (
        {"x_test": np.zeros((0, 8, 8)), "y_test": np.zeros(0, int)},
        "x_test holds no examples (its shape is 0 x 8 x 8); give it some to test on",
    ),
    "five axes": ({"x_train": np.zeros((30, 2, 2, 2, 2))}, "N x features"),
    "not finite": ({"x_test": np.full((12, 8, 8), np.nan), "x_train": np.zeros((30, 8, 8))}, "not finite"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_named_with_file_and_array(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changed, words = FAULTS[fault]
    path = save(tmp_path / "data.npz", **changed)
    with pytest.raises(DataError) as error:
        read(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)
    assert not (tmp_path / "touched").exists()


def test_a_missing_array_is_told_with_those_that_are_there(tmp_path: Path) -> None:
    found = arrays()
    found["labels"] = found.pop("y_test")
    np.savez(tmp_path / "data.npz", **found)
    with pytest.raises(
        DataError, match="y_test or Y_test or test_y or test_labels, and none is there; it holds labels"
    ):
        npz(tmp_path / "data.npz")
    np.savez(tmp_path / "data.npz", train_x=found["x_train"], **found)
    with pytest.raises(DataError, match="both x_train and train_x are there"):
        npz(tmp_path / "data.npz")


@pytest.mark.parametrize("content", [b"", b"no archive", pickle.dumps(Touch())])
def test_what_is_no_archive_is_never_unpickled(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"is no whole \.npz file"):
        npz(tmp_path / "data.npz")
    assert not (tmp_path / "touched").exists()


def test_what_is_something_else_says_what_it_is_and_what_to_use(tmp_path: Path) -> None:
    """Both were "no whole .npz file (File is not a zip file)"."""
    (tmp_path / "images").mkdir()
    with pytest.raises(DataError, match=r'is a folder and no \.npz file; .* kind = "folder"'):
        npz(tmp_path / "images")
    np.save(tmp_path / "data.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"is a single array \(\.npy\), and four are wanted .* np\.savez"):
        npz(tmp_path / "data.npy")


@pytest.mark.parametrize("end", [100, 1500, -30])
def test_a_file_that_is_cut_short(end: int, tmp_path: Path) -> None:
    path = save(tmp_path / "data.npz")
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(DataError, match=r"is no whole \.npz file"):
        read(path)


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        ('{ kind = "fc", hidden = [9] }', (6,)),
        ('{ kind = "cnn", channels = [2, 3, 2], dense = 4 }', (20, 20)),
        ('{ kind = "resnet", depth = 8 }', (12, 12, 3)),
    ],
)
def test_networks_are_trained_on_it(network: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    save(tmp_path / "data.npz", shape=shape)
    path = suite(tmp_path, '{ kind = "npz", path = "data.npz", mean = "channel" }')
    path.write_text(path.read_text().replace('{ kind = "fc", hidden = [9] }', network))
    done = called("run", "own.toml", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.regression
def test_bytes_and_other_numbers_are_not_mixed(tmp_path: Path) -> None:
    """One side would be divided by 255 and the other would not."""
    path = save(tmp_path / "data.npz", x_test=np.zeros((12, 8, 8), dtype=np.float32))
    with pytest.raises(DataError, match=r"x_train holds uint8 and x_test float32"):
        npz(path)
