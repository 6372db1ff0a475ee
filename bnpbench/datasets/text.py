"""Text, character by character."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from bnpbench.datasets.base import DataShape
from bnpbench.datasets.own import DIGITS, Look, Own
from bnpbench.errors import DataError
from bnpbench.fields import Positive
from bnpbench.text import plural

if TYPE_CHECKING:
    from torch import Tensor

    from bnpbench.datasets.base import Tensors


class Text(Own):
    """A text in UTF-8, of which each character is predicted from those before it, within a context.

    The text is cut into pieces of ``context`` characters; the last share of them is the test set. Without a path it is
    the language reference that ships with CPython (``pydoc_data.topics``), which differs between its versions.

    Attributes:
        context: characters an example.
        test: share of the examples, from the end of the text.
    """

    kind: Literal["text"]
    path: Annotated[str, Field(min_length=1)] = ""
    context: Positive = 128
    test: Annotated[float, Field(gt=0, lt=1)] = 0.1

    @classmethod
    def whence(cls) -> str:
        return "characters of a text in UTF-8, by default Python's language reference, which ships with it"

    @property
    def place(self) -> Path:
        if self.path:
            return super().place
        from pydoc_data import topics

        return Path(topics.__file__)

    def look(self, place: Path) -> Look:
        text, content = _read(place, shipped=not self.path)
        train, test = self._pieces(place, text)
        return Look(DataShape((self.context,), len(set(text)), train, test, tokens=True), content)

    def examples(self, place: Path) -> Tensors:
        import torch

        text, _ = _read(place, shipped=not self.path)
        train, test = self._pieces(place, text)
        numbers = {character: number for number, character in enumerate(sorted(set(text)))}
        tokens = torch.tensor([numbers[character] for character in text])

        def cut(first: int, count: int) -> tuple[Tensor, Tensor]:
            begin, end = first * self.context, (first + count) * self.context
            return tokens[begin:end].view(count, -1), tokens[begin + 1 : end + 1].view(count, -1)

        return *cut(0, train), *cut(train, test)

    def _pieces(self, place: Path, text: str) -> tuple[int, int]:
        if not text:
            raise DataError(f"{place} is empty; take a text that has something in it")
        count = (len(text) - 1) // self.context  # the last character has a place as a label only
        test = round(count * self.test)
        if not 0 < test < count:
            raise DataError(
                f"{place} has {len(text):,} {plural(len(text), 'character', 'characters')}, which are {count:,} "
                f"{plural(count, 'piece', 'pieces')} of context = {self.context}; take a shorter context, or a longer "
                f"text, of which {self.test:g} can be kept for the test"
            )
        if len(set(text)) < 2:
            raise DataError(f"{place} holds one character over and over, and it takes two to tell apart")
        return count - test, test


def _read(place: Path, shipped: bool) -> tuple[str, str]:
    """A text, and the first digits of its SHA-256."""
    try:
        state = place.stat()
        return _known(place, shipped, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise DataError(f"{place} cannot be read ({error.strerror}); path is relative to the suite's folder") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{place} is no text in UTF-8 (byte {error.start:,}); save it in that encoding") from None


@lru_cache(maxsize=4)
def _known(place: Path, shipped: bool, size: int, changed: int) -> tuple[str, str]:
    if shipped:
        from pydoc_data.topics import topics

        text = "".join(topics[name] for name in sorted(topics))
    else:
        text = place.read_bytes().decode("utf-8")
    return text, hashlib.sha256(text.encode("utf-8")).hexdigest()[:DIGITS]
