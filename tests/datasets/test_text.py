"""Characters of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnpbench.errors import DataError
from tests.support.kinds import made


def text(path: Path | None = None, **options: Any) -> Any:
    place = {} if path is None else {"path": path.name}
    return made("dataset", {"kind": "text", **place, **options}).located(Path() if path is None else path.parent)


def test_pieces_follow_each_other_and_labels_are_the_next_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    written = "héllo wörld, " * 5
    path.write_text(written, encoding="utf-8")
    data = text(path, context=4, test=0.25).tensors(Path("nowhere"))
    letters = sorted(set(written))
    pieces = [*data.train_x.tolist(), *data.test_x.tolist()]
    assert "".join(letters[n] for piece in pieces for n in piece) == written[:64]
    following = [*data.train_y.tolist(), *data.test_y.tolist()]
    assert "".join(letters[n] for piece in following for n in piece) == written[1:65]
    assert (len(data.train_x), len(data.test_x)) == (12, 4)


def test_what_is_described_is_what_is_loaded() -> None:
    from pydoc_data.topics import topics

    shipped = text(context=100)
    shape, data = shipped.describe(), shipped.tensors(Path("nowhere"))
    assert (shape.input, shape.tokens) == ((100,), True)
    assert (len(data.train_x), len(data.test_x)) == (shape.train, shape.test)
    assert shape.classes == len(set("".join(topics.values())))
    assert shape.train + shape.test == (sum(map(len, topics.values())) - 1) // 100


def test_its_content_is_in_the_key(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("abcdefgh" * 100)
    one = text(path)
    path.write_text("abcdefgx" * 100)
    assert one.content != text(path).content
    with pytest.raises(DataError, match="has changed since the suite was read"):
        one.tensors(Path("nowhere"))
    assert text().content is not None


@pytest.mark.parametrize(
    ("written", "options", "words"),
    [
        (b"abc", {}, "3 characters, which are 0 pieces of context = 128"),
        (b"ab" * 100, {"context": 100}, "which are 1 piece of"),
        (b"", {}, "a.txt is empty; take a text"),
        (b"a" * 1000, {"context": 4}, "one character over and over"),
        (b"ab\xff" * 1000, {}, "no text in UTF-8 \\(byte 2\\)"),
        (None, {}, "cannot be read"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, written: bytes | None, options: Any, words: str) -> None:
    path = tmp_path / "a.txt"
    if written is not None:
        path.write_bytes(written)
    with pytest.raises(DataError, match=words):
        text(path, **options)
