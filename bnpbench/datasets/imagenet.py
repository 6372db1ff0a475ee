"""An image folder in ImageNet's layout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from bnpbench.datasets.base import DatasetPlugin, DataShape
from bnpbench.datasets.storage import VARIABLE
from bnpbench.errors import DataError
from bnpbench.fields import Positive
from bnpbench.reading.classes import odd_layout
from bnpbench.reading.parts import PARTS

if TYPE_CHECKING:
    from bnpbench.reading.stream import Streams

FOLDER = "imagenet"  # under the folder of data sets
_LAYOUT = f"{FOLDER}/train/CLASS/*.JPEG and {FOLDER}/val/CLASS/*.JPEG"


class ImageNet(DatasetPlugin):
    """An image folder in ImageNet's layout (``train/`` and ``val/``, a folder a class)."""

    streamed: ClassVar[bool] = True
    source: ClassVar[Literal["made", "data folder", "path"]] = "data folder"
    kind: Literal["imagenet"]
    workers: Annotated[int, Field(ge=0)] = 4
    size: Positive = 224

    @classmethod
    def whence(cls) -> str:
        return f"an image folder in ImageNet's layout, under {FOLDER}/train/ and {FOLDER}/val/"

    def describe(self) -> DataShape:
        """That of ILSVRC 2012 at the size asked for."""
        return DataShape((3, self.size, self.size), 1000, 1_281_167, 50_000)

    def found(self, root: Path) -> DataShape:
        from bnpbench.reading import imagefolder

        folder = _folder(root)
        imagefolder.check_classes(folder)
        (classes, train), (_, test) = (imagefolder.listing(folder / part) for part in PARTS)
        return DataShape((3, self.size, self.size), len(classes), len(train), len(test))

    def open(self, root: Path, **options: Any) -> Streams:
        from bnpbench.reading.stream import open_streams

        return open_streams(_folder(root), workers=self.workers, size=self.size, **options)

    @classmethod
    def missing(cls, root: Path) -> str | None:
        lacking = next((part for part in PARTS if not (root / FOLDER / part).is_dir()), None)
        if lacking is None:
            return None
        return (
            f"ImageNet is not under {root}: the folder {FOLDER}/{lacking} is missing; it cannot be downloaded "
            f"without an account: get it from https://image-net.org, lay it out as {_LAYOUT}, "
            f"and give the folder that holds it by --data-dir or {VARIABLE}"
        )

    @classmethod
    def damaged(cls, root: Path) -> str | None:
        try:
            return next((fault for part in PARTS if (fault := odd_layout(root / FOLDER / part, _LAYOUT))), None)
        except OSError as error:
            told = f"give its folder by --data-dir or {VARIABLE}"
            return f"{error.filename} cannot be read ({error.strerror}); {told}"


def _folder(root: Path) -> Path:
    """The image folder. Raises DataError where it is not there, or not laid out so."""
    if (reason := ImageNet.unfit(root)) is not None:
        raise DataError(reason)
    return root / FOLDER
