"""Data sets of the user's own, which a suite names by where they lie."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, PrivateAttr

from bnpbench.datasets.base import DatasetPlugin, DataShape, Images
from bnpbench.errors import DataError

if TYPE_CHECKING:
    from bnpbench.datasets.base import Tensors

DIGITS = 16  # of a SHA-256


class Look(NamedTuple):
    """What shows of the data before they are read.

    Attributes:
        shape: of them.
        content: first digits of a SHA-256 that is another where they are others.
    """

    shape: DataShape
    content: str


class Own(DatasetPlugin):
    """Examples that lie where a suite says. A subclass defines ``look`` and ``examples``.

    Its ``content`` is filled in when a suite is loaded, so that results of other data are never taken for these.
    """

    source: ClassVar[Literal["made", "data folder", "path"]] = "path"
    content: str | None = None
    path: Annotated[str, Field(min_length=1)]  # the later one is what a heading tells
    _folder: Path = PrivateAttr(default_factory=Path)
    _shape: DataShape | None = PrivateAttr(default=None)

    def look(self, place: Path) -> Look:
        """What shows of the data at ``place``. Raises DataError, which says what to do."""
        raise NotImplementedError(f"{type(self).__name__} defines no look()")

    def examples(self, place: Path) -> Tensors:
        """The data at ``place`` as :meth:`load` gives them. Raises DataError, which says what to do."""
        raise NotImplementedError(f"{type(self).__name__} defines no examples()")

    @property
    def place(self) -> Path:
        """Where they lie: a path is relative to the suite's folder, or without one to the current folder."""
        return self._folder / self.path

    def located(self, folder: Path) -> Self:
        if Path(self.path).is_absolute():
            relative = os.path.relpath(self.path, folder)
            raise DataError(f"an absolute path would stand in every result; from the suite's folder it is {relative!r}")
        found = self.model_copy()
        found._folder = folder.resolve()
        shape, content = found.look(found.place)
        if self.content not in (None, content):
            raise DataError(f"{found.place} is not what the suite says: its content is {content!r}")
        found = found.model_copy(update={"content": content})
        found._shape = shape
        return found

    def describe(self) -> DataShape:
        return self._shape or self.look(self.place).shape

    def found(self, root: Path) -> DataShape:
        """Reads all of it where this process has not yet, so that a damaged file ends a run before it begins."""
        if (self.place, self.content) not in _WHOLE:
            self.read(root)
        return self.describe()

    def read(self, root: Path) -> Tensors:
        if self.content not in (None, self.look(self.place).content):
            raise DataError(f"{self.place} has changed since the suite was read; run the command again")
        read = self.examples(self.place)
        _WHOLE.add((self.place, self.content))
        return read


class OwnImages(Own, Images):
    """Images, or rows of features, that lie where a suite says."""


_WHOLE: set[tuple[Path, str | None]] = set()
"""What this process has read to its end."""
