"""Stored data sets: found, checked, read, fetched; and every way in which they can be missing."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import os
import pickle
import re
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import datasets as torchvision_datasets

from bnpbench.cli.data import get, overview
from bnpbench.datasets import storage, stored
from bnpbench.datasets.base import DatasetPlugin, DataShape
from bnpbench.datasets.cifar10 import Cifar10
from bnpbench.datasets.cifar100 import Cifar100
from bnpbench.datasets.mnist import Mnist
from bnpbench.errors import DataError
from bnpbench.execution.options import check_data
from bnpbench.registry import built_in
from tests.support.kinds import made

REAL = os.environ.get("BNPBENCH_DATA")


def options(value: Any) -> Any:
    return made("dataset", value)


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100"])
def test_the_real_files_are_what_they_are_said_to_be(name: str) -> None:
    if REAL is None:
        pytest.skip("BNPBENCH_DATA is not set")
    if (reason := options(name).unfit(Path(REAL))) is not None:
        pytest.skip(reason)
    data, shape = options(name).tensors(Path(REAL)), options(name).describe()
    assert data.train_x.shape == (shape.train, *shape.input)
    assert data.test_x.shape == (shape.test, *shape.input)
    assert (data.train_x.dtype, data.train_y.dtype) == (torch.float32, torch.int64)
    assert (data.train_x.min(), data.train_x.max()) == (0, 1)
    assert data.train_x.is_contiguous()
    assert len(data.train_y.unique()) == len(data.test_y.unique()) == shape.classes


@pytest.mark.data
def test_cifar10_images_are_the_files_bytes() -> None:
    if REAL is None or options("cifar10").unfit(Path(REAL)):
        pytest.skip("BNPBENCH_DATA holds no CIFAR-10")
    data = options("cifar10").tensors(Path(REAL))
    batch = pickle.loads((Path(REAL) / "cifar-10-batches-py/data_batch_1").read_bytes(), encoding="latin1")
    want = torch.from_numpy(batch["data"][:100].reshape(100, 3, 32, 32)).double() / 255
    torch.testing.assert_close(data.train_x[:100].double(), want, atol=1e-7, rtol=0)
    assert data.train_y[:100].tolist() == batch["labels"][:100]


# --- small files in the real formats ---------------------------------------------------------


def idx(array: np.ndarray[Any, Any]) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def tiny_mnist() -> dict[str, bytes]:
    random = np.random.default_rng(0)
    files = {}
    for part, count in (("train", 6), ("t10k", 4)):
        files[f"{part}-images-idx3-ubyte"] = idx(random.integers(0, 256, (count, 28, 28)))
        files[f"{part}-labels-idx1-ubyte"] = idx(random.integers(0, 10, count))
    return files


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """MNIST's entry with the sums of a tiny MNIST, whose files this is."""
    files = tiny_mnist()
    monkeypatch.setattr(Mnist, "files", {name: md5(data) for name, data in files.items()})
    monkeypatch.setattr(Mnist, "known", DataShape((1, 28, 28), 10, 6, 4))
    return files


def lay_out(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def test_mnist_is_read_from_its_files(mnist: dict[str, bytes], tmp_path: Path) -> None:
    lay_out(mnist, tmp_path / "MNIST/raw")
    assert options("mnist").unfit(tmp_path) is None
    data = options("mnist").tensors(tmp_path)
    pixels = np.frombuffer(mnist["t10k-images-idx3-ubyte"][16:], np.uint8).reshape(4, 1, 28, 28)
    torch.testing.assert_close(data.test_x, torch.from_numpy(pixels / 255).float())
    assert data.test_y.tolist() == list(mnist["t10k-labels-idx1-ubyte"][8:])


def test_cifar100_is_read_with_its_fine_labels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    pixels = {part: random.integers(0, 256, (3, 3072), dtype=np.uint8) for part in ("train", "test")}
    labels = {"train": [99, 0, 5], "test": [7, 7, 98]}
    files = {
        part: pickle.dumps({"data": pixels[part], "fine_labels": labels[part], "coarse_labels": [0, 0, 0]})
        for part in ("train", "test")
    }
    files["meta"] = pickle.dumps({"fine_label_names": [str(label) for label in range(100)]})

    class Tiny(torchvision_datasets.CIFAR100):  # type: ignore[misc]
        train_list = [["train", md5(files["train"])]]  # noqa: RUF012
        test_list = [["test", md5(files["test"])]]  # noqa: RUF012
        meta = {**torchvision_datasets.CIFAR100.meta, "md5": md5(files["meta"])}  # noqa: RUF012

    monkeypatch.setattr(Cifar100, "files", dict([*Tiny.train_list, *Tiny.test_list]))
    monkeypatch.setattr(Cifar100, "known", DataShape((3, 32, 32), 100, 3, 3))
    monkeypatch.setattr(torchvision_datasets, "CIFAR100", Tiny)
    lay_out(files, tmp_path / "cifar-100-python")
    data = options("cifar100").tensors(tmp_path)
    assert (data.train_y.tolist(), data.test_y.tolist()) == (labels["train"], labels["test"])
    torch.testing.assert_close(data.test_x.flatten(1), torch.from_numpy(pixels["test"] / 255).float())


# --- missing, damaged, offline ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100"])
def test_what_is_missing_is_named_with_what_to_do(name: str, tmp_path: Path) -> None:
    reason = options(name).unfit(tmp_path)
    assert reason is not None
    for word in [str(tmp_path), "--data-dir", "BNPBENCH_DATA", f"bnpbench data get {name}"]:
        assert word in reason
    with pytest.raises(DataError, match="is missing"):
        options(name).tensors(tmp_path)


def test_the_first_missing_file_is_named(mnist: dict[str, bytes], tmp_path: Path) -> None:
    lay_out(mnist, tmp_path / "MNIST/raw")
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    assert "MNIST/raw/t10k-labels-idx1-ubyte is missing" in str(options("mnist").unfit(tmp_path))


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: b""]
)
def test_a_damaged_file_is_named_and_never_read(mnist: dict[str, bytes], tmp_path: Path, damage: Any) -> None:
    lay_out(mnist, tmp_path / "MNIST/raw")
    path = tmp_path / "MNIST/raw/train-labels-idx1-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    for refused in (
        lambda: options("mnist").tensors(tmp_path),
        lambda: built_in().dataset("mnist").fetch(tmp_path),  # before anything runs: it is not replaced unasked
        lambda: check_data({Mnist}, tmp_path, offline=True),
    ):
        with pytest.raises(DataError, match="damaged") as error:
            refused()
        assert f"{path} ({path.stat().st_size:,} bytes)" in str(error.value)
        assert "bnpbench data get mnist" in str(error.value)
    (line,) = [line for line in overview(tmp_path).splitlines() if line.startswith("mnist")]
    assert line.split()[1] == "damaged"


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_sums_are_those_of_torchvision(name: str) -> None:
    known: Any = built_in().dataset(name)
    reader = getattr(torchvision_datasets, known.reader)
    meta = reader.meta["filename"], reader.meta["md5"]  # torchvision reads the names of the classes
    assert list(known.files.items()) == [tuple(pair) for pair in [*reader.train_list, *reader.test_list, meta]]


def test_a_pickle_with_another_sum_is_never_opened(tmp_path: Path) -> None:
    for name in Cifar10.files:
        path = tmp_path / "cifar-10-batches-py" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="damaged"):
        options("cifar10").tensors(tmp_path)


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemError('the pickle was opened')",))


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_offline_nothing_is_downloaded(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "variable":
        monkeypatch.setenv("BNPBENCH_OFFLINE", "1")
    else:
        monkeypatch.delenv("BNPBENCH_OFFLINE", raising=False)
    with pytest.raises(DataError, match="offline") as error:
        built_in().dataset("cifar10").fetch(tmp_path / "new", offline=how == "argument")
    for word in ["--data-dir", "BNPBENCH_DATA", "bnpbench data get cifar10"]:
        assert word in str(error.value)
    assert not (tmp_path / "new").exists()


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cifar10"):
        built_in().dataset("cifar11").fetch(tmp_path)


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_what_needs_no_file_is_never_missing(name: str, tmp_path: Path) -> None:
    assert options(name).unfit(tmp_path) is None
    built_in().dataset(name).fetch(tmp_path, offline=True)
    assert list(tmp_path.iterdir()) == []


# --- fetching, from a server on this machine -------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    requested: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.requested.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(mnist: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """MNIST's entry with a mirror on this machine; the list of what was asked of it."""
    archives = {f"{name}.gz": gzip.compress(data) for name, data in mnist.items()}
    lay_out(archives, tmp_path / "mirror")
    Quiet.requested = []
    handler = partial(Quiet, directory=str(tmp_path / "mirror"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()

        class Local(torchvision_datasets.MNIST):  # type: ignore[misc]
            mirrors = [f"http://127.0.0.1:{httpd.server_port}/"]  # noqa: RUF012
            resources = [(name, md5(data)) for name, data in archives.items()]  # noqa: RUF012

            @property
            def raw_folder(self) -> str:
                return os.path.join(self.root, "MNIST", "raw")

        monkeypatch.setattr(torchvision_datasets, "MNIST", Local)
        monkeypatch.delenv("BNPBENCH_OFFLINE", raising=False)
        yield Quiet.requested
        httpd.shutdown()


def test_fetching_says_so_and_brings_the_files_once(
    server: list[str], mnist: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "new"
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: built_in().dataset("mnist").fetch(root), range(3)))
    assert set(server) == {f"/{name}.gz" for name in mnist}
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count(f"fetching MNIST (12 MB) to {root}") == 1
    assert root.stat().st_mode & 0o777 == 0o700
    assert len(options("mnist").tensors(root).train_x) == 6
    built_in().dataset("mnist").fetch(root, offline=True)  # what is there needs no network


def test_how_far_a_file_is_is_told(server: list[str], mnist: dict[str, bytes], tmp_path: Path) -> None:
    """In bytes and as a share of the file, by whoever downloads, and not as a bar that torchvision draws."""
    told: list[tuple[str, str]] = []
    with storage.told_to(lambda what, far: told.append((what, far))):
        built_in().dataset("mnist").fetch(tmp_path / "new")
    assert {what for what, _ in told} == {f"fetching MNIST (12 MB) to {tmp_path / 'new'}"}
    first, *files = [far for _, far in told]
    assert first == ""
    assert len(files) == len(mnist)
    assert all(re.fullmatch(r"\(this file: 0\.0 of 0\.0 MB, 100%\)", far) for far in files)


def test_a_file_of_unknown_length_is_told_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    seconds = iter([0.0, 0.1, 0.6, 0.7])
    monkeypatch.setattr(stored.time, "monotonic", lambda: next(seconds))
    with storage.told_to(lambda what, far: told.append(far)):
        bar = stored._Bytes("fetching it", None)  # what torchvision is given instead of its own
        for _ in range(4):
            bar.update(1_000_000)
    assert told == ["(this file: 1.0 MB)", "(this file: 3.0 MB)"]


def test_a_damaged_file_is_fetched_again_where_that_is_asked_for(
    server: list[str], mnist: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay_out(mnist, tmp_path / "MNIST/raw")
    (tmp_path / "MNIST/raw/t10k-images-idx3-ubyte").write_bytes(b"")
    get("mnist", tmp_path)
    assert capsys.readouterr().out == f"mnist is under {tmp_path}\n"
    assert options("mnist").unfit(tmp_path) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mnist.lock", "MNIST", "mirror"]


def test_files_appear_whole_and_nothing_stays_of_a_killed_download(
    mnist: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that looks while the first one downloads finds no half of a file."""
    raw, seen = tmp_path / "MNIST/raw", []

    def slowly(root: Path, download: bool) -> None:
        for name, data in mnist.items():
            for end in (1, len(data) // 2, len(data)):
                lay_out({name: data[:end]}, Path(root) / "MNIST/raw")
                seen.append(raw.exists())

    monkeypatch.setattr(torchvision_datasets, "MNIST", slowly)
    lay_out({"rest": b""}, tmp_path / ".mnist.partial")
    built_in().dataset("mnist").fetch(tmp_path)
    assert not any(seen)
    assert {path.name: path.read_bytes() for path in raw.iterdir()} == mnist
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mnist.lock", "MNIST"]


def test_what_arrives_damaged_is_not_kept(
    mnist: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(root: Path, download: bool) -> None:
        lay_out(dict.fromkeys(mnist, b"an error page"), Path(root) / "MNIST/raw")

    monkeypatch.setattr(torchvision_datasets, "MNIST", wrong)
    with pytest.raises(DataError, match="could not be downloaded"):
        built_in().dataset("mnist").fetch(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".mnist.lock"]


def test_a_file_that_may_not_be_read_is_named(
    mnist: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(mnist, tmp_path / "MNIST/raw")

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte cannot be read \(Permission denied\)"):
        options("mnist").tensors(tmp_path)


def test_a_failed_download_is_an_error_with_advice(
    server: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchvision_datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])  # nothing listens there
    with pytest.raises(DataError, match="could not be downloaded") as error:
        built_in().dataset("mnist").fetch(tmp_path / "new")
    assert "--data-dir" in str(error.value)


# --- where -----------------------------------------------------------------------------------


def test_fetching_into_a_folder_that_cannot_be_made_is_an_error(server: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be created"):
        built_in().dataset("mnist").fetch(tmp_path / "file/new")


def test_the_catalogue_tells_what_is_there(mnist: dict[str, bytes], tmp_path: Path) -> None:
    lay_out(mnist, tmp_path / "MNIST/raw")
    known = built_in().kinds(DatasetPlugin)
    assert known["mnist"].missing(tmp_path) is None
    assert known["digits"].missing(tmp_path) is None
    assert "bnpbench data get cifar10" in str(known["cifar10"].missing(tmp_path))
    assert known["cifar10"].downloadable
    assert not known["imagenet"].downloadable
