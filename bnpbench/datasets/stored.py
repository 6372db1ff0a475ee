"""Data sets that torchvision downloads and reads: their files and sums, and what is wrong with them."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from urllib.error import URLError

from bnpbench.datasets.base import DataShape, Images
from bnpbench.datasets.storage import VARIABLE, is_offline, prepare, tell
from bnpbench.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from bnpbench.datasets.base import Tensors


TELL_SECONDS = 0.5  # between words about a file's bytes


class StoredImages(Images):
    """A data set of files under the folder of data sets. No file is read whose MD5 sum is another than torchvision's.

    Attributes:
        title: its name, as people write it.
        reader: torchvision's class of it.
        folder: where its files lie under the root.
        files: their names and MD5 sums.
        megabytes: size of the download.
        known: its shape.
    """

    downloadable: ClassVar[bool] = True
    source: ClassVar[Literal["made", "data folder", "path"]] = "data folder"
    title: ClassVar[str]
    reader: ClassVar[str]
    folder: ClassVar[str]
    files: ClassVar[dict[str, str]]
    megabytes: ClassVar[int]
    known: ClassVar[DataShape]

    def describe(self) -> DataShape:
        return self.known

    @classmethod
    def whence(cls) -> str:
        return f"{cls.title} by torchvision ({cls.megabytes} MB), under {cls.folder}/"

    def read(self, root: Path) -> Tensors:
        if (reason := self.unfit(root)) is not None:
            raise DataError(reason)
        return *_tensors(self._torchvision(root, train=True)), *_tensors(self._torchvision(root, train=False))

    @classmethod
    def missing(cls, root: Path) -> str | None:
        lacking = next((file for file in cls.files if not (root / cls.folder / file).is_file()), None)
        if lacking is None:
            return None
        return f"{cls.title} is not under {root}: {cls.folder}/{lacking} is missing; {cls._how_to_get()}"

    @classmethod
    def damaged(cls, root: Path) -> str | None:
        try:
            for file, md5 in cls.files.items():
                path = root / cls.folder / file
                with path.open("rb") as stream:
                    found = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
                if found != md5:
                    return (
                        f"{cls.title} is damaged: the MD5 sum of {path} ({path.stat().st_size:,} bytes) is {found}, "
                        f"not {md5}; fetch it again with `bnpbench data get {cls.word()}`, or give another folder "
                        f"by --data-dir or {VARIABLE}"
                    )
        except OSError as error:
            return f"{error.filename} cannot be read ({error.strerror}); {cls._how_to_get()}"
        return None

    @classmethod
    def fetch(cls, root: Path, *, offline: bool = False, replace: bool = False) -> None:
        """Bring it under ``root`` by torchvision, unless it is there; announced on stderr.

        It is downloaded beside its place and its files are moved there when their MD5 sums are right: whoever finds a
        file finds it whole. One process at a time: others wait at the file lock and then find the files.

        Args:
            root: folder of the data sets.
            offline: download nothing.
            replace: download files again that are there and damaged.

        Raises:
            DataError: files are damaged and not to be replaced, offline (by the argument or ``BNPBENCH_OFFLINE=1``), no
                network, or a folder that cannot be written.
        """
        from filelock import FileLock

        if (reason := cls.unfit(root)) is None:
            return
        if cls.missing(root) is None and not replace:
            raise DataError(reason)
        if is_offline(offline):
            raise DataError(f"{reason} (offline: nothing is downloaded)")
        prepare(root)
        with FileLock(root / f".{cls.word()}.lock"):
            if cls.unfit(root) is not None:
                cls._download(root)

    @classmethod
    def _download(cls, root: Path) -> None:
        beside = root / f".{cls.word()}.partial"
        what = f"fetching {cls.title} ({cls.megabytes} MB) to {root}"
        tell(what)
        shutil.rmtree(beside, ignore_errors=True)  # of a run that was killed
        try:
            beside.mkdir()
            with _counted(what):
                cls._torchvision(beside, download=True)
            if (reason := cls.unfit(beside)) is not None:
                raise RuntimeError(reason)
            (root / cls.folder).mkdir(parents=True, exist_ok=True)
            for file in cls.files:
                os.replace(beside / cls.folder / file, root / cls.folder / file)
        except (URLError, OSError, RuntimeError) as error:
            raise DataError(f"{cls.title} could not be downloaded to {root} ({error}); {cls._how_to_get()}") from error
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    @classmethod
    def _torchvision(cls, root: Path, **options: bool) -> Any:
        from torchvision import datasets

        return getattr(datasets, cls.reader)(root, **options)

    @classmethod
    def _how_to_get(cls) -> str:
        return f"give its folder by --data-dir or {VARIABLE}, or run `bnpbench data get {cls.word()}`"


class _Bytes:
    """Stands for the bar that torchvision draws of a file's bytes, and tells them instead.

    Args:
        what: is fetched.
        total: bytes of the file; None where the server does not say.
    """

    def __init__(self, what: str, total: int | None) -> None:
        self._what, self._total, self._done, self._told = what, total, 0, -TELL_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The file is there, or is not going to be."""

    def update(self, count: int) -> None:
        """So many bytes more are there."""
        self._done += count
        if (now := time.monotonic()) - self._told >= TELL_SECONDS or self._done == self._total:
            self._told = now
            share = f" of {self._total / 1e6:.1f} MB, {self._done / self._total:.0%}" if self._total else " MB"
            tell(self._what, f"(this file: {self._done / 1e6:.1f}{share})")


@contextmanager
def _counted(what: str) -> Iterator[None]:
    """The bytes of each file that torchvision downloads meanwhile are told."""
    from torchvision.datasets import utils

    drawn = utils.tqdm
    utils.tqdm = lambda *_, total=None, **__: _Bytes(what, total)
    try:
        yield
    finally:
        utils.tqdm = drawn


def _tensors(source: Any) -> tuple[Tensor, Tensor]:
    import torch

    images = torch.as_tensor(source.data)  # (n, 28, 28) or (n, 32, 32, 3), uint8
    images = images.unsqueeze(1) if images.ndim == 3 else images.permute(0, 3, 1, 2)
    return images.to(torch.float32, memory_format=torch.contiguous_format).div_(255), torch.as_tensor(source.targets)
