"""Where data sets lie."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import os
import struct
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torchvision import datasets as torchvision_datasets

from bnpbench.datasets import storage
from bnpbench.datasets.base import DataShape
from bnpbench.datasets.mnist import Mnist
from bnpbench.errors import DataError
from bnpbench.registry import built_in


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


def test_a_folder_that_cannot_be_made_is_an_error(server: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be created"):
        built_in().dataset("mnist").fetch(tmp_path / "file/new")


def test_the_root_is_the_flag_then_the_variable_then_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BNPBENCH_DATA", str(tmp_path / "variable"))
    assert storage.root(tmp_path / "flag") == tmp_path / "flag"
    assert storage.root(None) == tmp_path / "variable"
    monkeypatch.setenv("BNPBENCH_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert storage.root(None) == tmp_path / "cache/bnpbench/data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage.root(None).is_relative_to(tmp_path)
