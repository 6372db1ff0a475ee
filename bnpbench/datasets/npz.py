"""Arrays in a file of numpy's."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bnpbench.datasets.base import DataShape
from bnpbench.datasets.own import DIGITS, Look, OwnImages
from bnpbench.errors import DataError
from bnpbench.text import plural

if TYPE_CHECKING:
    from bnpbench.datasets.base import Tensors

ROLES = ("x_train", "y_train", "x_test", "y_test")
NAMES = {
    "x_train": ("x_train", "X_train", "train_x", "train_images"),
    "y_train": ("y_train", "Y_train", "train_y", "train_labels"),
    "x_test": ("x_test", "X_test", "test_x", "test_images"),
    "y_test": ("y_test", "Y_test", "test_y", "test_labels"),
}
"""What each of the four arrays may be called."""
CHANNELS = (1, 3, 4)  # numbers that tell which axis of images is that of the channels
_HOW = "save it anew: np.savez(file, x_train=..., y_train=..., x_test=..., y_test=...)"
Layout = Literal["auto", "nhwc", "nchw"]


class Npz(OwnImages):
    """Arrays in an .npz file: x_train, y_train, x_test and y_test, of images or of rows of features.

    Images are N x H x W, N x H x W x C or N x C x H x W; features N x features. Values of uint8 are divided by 255,
    other numbers stay as they are. Labels are whole numbers from 0 on. No pickled object is ever read.
    """

    kind: Literal["npz"]
    layout: Layout = "auto"

    @classmethod
    def whence(cls) -> str:
        return 'arrays in a file, of a suite: { kind = "npz", path = "data.npz" }'

    def look(self, place: Path) -> Look:
        try:
            state = place.stat()
        except OSError as error:
            raise DataError(
                f"{place} cannot be read ({error.strerror}); path is relative to the suite's folder"
            ) from None
        return _looked(place, self.layout, state.st_size, state.st_mtime_ns)

    def examples(self, place: Path) -> Tensors:
        import torch

        names = {role: header.name for role, header in _headers(place).items()}
        found = []
        for role in ROLES:
            array = _array(place, names[role])
            if role.startswith("y"):
                found.append(torch.from_numpy(_labels(place, names[role], array)))
                continue
            scale = 255.0 if array.dtype == np.uint8 else 1.0
            moved = _channels_first(place, names[role], array, self.layout)
            values = torch.from_numpy(np.ascontiguousarray(moved, dtype=np.float32)).div_(scale)
            if not torch.isfinite(values).all():
                raise DataError(f"{place}: {names[role]} holds values that are not finite; leave these examples out")
            found.append(values)
        train_x, train_y, test_x, test_y = found
        return train_x, train_y, test_x, test_y


class _Header(NamedTuple):
    """What an array says of itself."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@lru_cache(maxsize=8)
def _looked(place: Path, layout: Layout, size: int, changed: int) -> Look:
    headers = _headers(place)
    for role, (name, shape, dtype) in headers.items():
        if dtype.kind not in "biuf":
            raise DataError(f"{place}: {name} holds {dtype}, and an array of numbers is wanted; {_HOW}")
        wanted = (2, 3, 4) if role.startswith("x") else (1, 2)
        if shape[:1] == (0,):
            part = "train on" if role.endswith("train") else "test on"
            raise DataError(f"{place}: {name} holds no examples (its shape is {_told(shape)}); give it some to {part}")
        if len(shape) not in wanted or 0 in shape:
            forms = "N x features, N x H x W or images with channels" if role.startswith("x") else "N labels"
            raise DataError(f"{place}: {name} has the shape {_told(shape)}, and {forms} are wanted")
    for part in ("train", "test"):
        x, y = headers[f"x_{part}"], headers[f"y_{part}"]
        if x.shape[0] != y.shape[0]:
            raise DataError(
                f"{place}: {x.name} has {x.shape[0]:,} {plural(x.shape[0], 'example', 'examples')} and {y.name} "
                f"{y.shape[0]:,} {plural(y.shape[0], 'label', 'labels')}; each example needs one"
            )
    train, test = headers["x_train"], headers["x_test"]
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{place}: an example is {_told(train.shape[1:])} in {train.name} and {_told(test.shape[1:])} in "
            f"{test.name}; bring them to one shape"
        )
    if (train.dtype == np.uint8) != (test.dtype == np.uint8):
        raise DataError(
            f"{place}: {train.name} holds {train.dtype} and {test.name} {test.dtype}, and only values of uint8 are "
            "divided by 255; save both in one type"
        )
    labels = [_labels(place, headers[role].name, _array(place, headers[role].name)) for role in ("y_train", "y_test")]
    classes = _classes(place, [headers["y_train"].name, headers["y_test"].name], labels)
    axes = _axes(place, train.name, train.shape, layout)
    inner = (1, *train.shape[1:]) if len(train.shape) == 3 else tuple(train.shape[axis] for axis in axes[1:])
    with place.open("rb") as stream:
        content = hashlib.file_digest(stream, "sha256").hexdigest()[:DIGITS]
    return Look(DataShape(inner, classes, train.shape[0], test.shape[0]), content)


def _headers(place: Path) -> dict[str, _Header]:
    """The four arrays, by their roles, without their values."""
    try:
        with zipfile.ZipFile(place) as archive:
            there = [name.removesuffix(".npy") for name in archive.namelist()]
            found = {}
            for role in ROLES:
                named = [name for name in NAMES[role] if name in there]
                if len(named) != 1:
                    found_here = f"both {named[0]} and {named[1]} are there" if named else "none is there"
                    raise DataError(
                        f"{place}: one array is wanted that is called {' or '.join(NAMES[role])}, and {found_here}; "
                        f"it holds {', '.join(sorted(there)[:10]) or 'nothing'}"
                    )
                with archive.open(f"{named[0]}.npy") as stream:
                    version = np.lib.format.read_magic(stream)
                    read = (
                        np.lib.format.read_array_header_1_0
                        if version == (1, 0)
                        else np.lib.format.read_array_header_2_0
                    )
                    shape, _, dtype = read(stream)
                found[role] = _Header(named[0], tuple(shape), dtype)
            return found
    except _DAMAGED as error:
        raise _damaged(place, error) from error


def _array(place: Path, name: str) -> npt.NDArray[Any]:
    try:
        with np.load(place, allow_pickle=False) as arrays:
            found: npt.NDArray[Any] = arrays[name]
            return found
    except _DAMAGED as error:
        raise _damaged(place, error) from error


_DAMAGED = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)


def _damaged(place: Path, error: Exception) -> DataError:
    if place.is_dir():
        return DataError(
            f'{place} is a folder and no .npz file; images in folders, one a class, are of kind = "folder"'
        )
    if _begins(place, np.lib.format.MAGIC_PREFIX):
        return DataError(f"{place} is a single array (.npy), and four are wanted in one .npz file; {_HOW}")
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return DataError(f"{place} is no whole .npz file ({reason}); {_HOW}")


def _begins(place: Path, start: bytes) -> bool:
    try:
        with place.open("rb") as stream:
            return stream.read(len(start)) == start
    except OSError:
        return False


def _labels(place: Path, name: str, array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """One whole number an example."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "biu":
        hint = "; np.argmax(labels, axis=1) makes them of one-hot rows" if array.ndim == 2 else ""
        raise DataError(
            f"{place}: {name} is {array.dtype} of shape {_told(array.shape)}, and one whole number an example is "
            f"wanted{hint}"
        )
    return array.astype(np.int64)


def _classes(place: Path, names: list[str], labels: list[npt.NDArray[np.int64]]) -> int:
    """How many there are: those of the training labels, which are 0, 1, 2 and so on."""
    train, test = ({int(label) for label in np.unique(each)} for each in labels)
    whole = set(range(max(train) + 1))
    if min(train) < 0 or train != whole:
        odd = f"{min(train)} is among them" if min(train) < 0 else f"{min(whole - train)} is not among them"
        raise DataError(
            f"{place}: {names[0]} goes up to {max(train)} and {odd}; labels are 0, 1, 2 and so on: "
            "np.unique(labels, return_inverse=True)[1] numbers them so"
        )
    if len(train) < 2:
        raise DataError(f"{place}: {names[0]} knows one class, and it takes two to tell apart")
    if test - train:
        raise DataError(f"{place}: {names[1]} has the label {min(test - train)}, which {names[0]} has not")
    return len(train)


def _axes(place: Path, name: str, shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """The axes of an array with the channels in front of height and width."""
    if len(shape) < 4:
        return tuple(range(len(shape)))
    last = {"nhwc": True, "nchw": False}.get(layout)
    if last is None:
        ends = shape[3] in CHANNELS, shape[1] in CHANNELS
        if ends[0] == ends[1]:
            raise DataError(
                f"{place}: of the shape {_told(shape)} of {name} it does not show where the channels are; say "
                'layout = "nhwc" or "nchw"'
            )
        last = ends[0]
    return (0, 3, 1, 2) if last else (0, 1, 2, 3)


def _channels_first(place: Path, name: str, array: npt.NDArray[Any], layout: Layout) -> npt.NDArray[Any]:
    moved = array.transpose(_axes(place, name, array.shape, layout))
    return moved[:, np.newaxis] if moved.ndim == 3 else moved


def _told(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "of a single number"
