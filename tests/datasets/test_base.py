"""What every data set has: its shape, held to what is loaded; what one without files leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from bnpbench import DatasetPlugin, DataShape
from bnpbench.datasets.base import Images, shape_of
from bnpbench.errors import DataError, SuiteError


class Counted(DatasetPlugin):
    """Numbers, counted.

    More is not said of them.
    """

    kind: Literal["counted"]
    scale: float = 1.0

    def describe(self) -> DataShape:
        return DataShape((2,), 3, 10, 4)

    def load(self) -> Any:
        x = self.scale * torch.arange(20.0).view(10, 2)
        return x, torch.arange(10) % 3, x[:4], torch.arange(4) % 3


class Pictures(Images):
    kind: Literal["pictures"]

    def describe(self) -> DataShape:
        return DataShape((1, 2, 2), 2, 6, 2)

    def load(self) -> Any:
        x = torch.rand(8, 1, 2, 2, generator=torch.Generator().manual_seed(0)) + 3
        return x[:6], torch.arange(6) % 2, x[6:], torch.arange(2)


class Told(DatasetPlugin):
    kind: Literal["told"]

    def describe(self) -> Any:
        return (2,), 3, 10, 4


class Streamed(Counted):
    streamed = True
    kind: Literal["streamed"]


HERE = Path()


def test_what_is_loaded_is_split() -> None:
    data = Counted(kind="counted").tensors(HERE, validation=0.2, train_limit=5, seed=1)
    assert data.validation_y is not None
    assert (len(data.train_y), len(data.validation_y), len(data.test_y)) == (5, 2, 4)
    assert Counted(kind="counted", scale=2.0).tensors(HERE).train_x[1].tolist() == [4.0, 6.0]


@pytest.mark.parametrize(
    ("place", "loaded", "words"),
    [
        (0, torch.zeros(9, 2), r"train examples are torch.float32 of shape \(9, 2\), not .* of shape \(10, 2\)"),
        (0, torch.zeros(10, 2, dtype=torch.float16), "torch.float16"),
        (1, torch.full((10,), 3), "train labels go from 3 to 3, not from 0 to 2"),
        (3, torch.zeros(4), "test labels are torch.float32"),
        (None, [], "no tuple of four tensors"),
    ],
)
def test_what_is_not_as_described_is_told(
    place: int | None, loaded: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(Counted(kind="counted").load())
    if place is not None:
        whole[place] = loaded
    monkeypatch.setattr(Counted, "load", lambda dataset: tuple(whole) if place is not None else loaded)
    with pytest.raises(DataError, match=f"the data set 'counted' does not load what its shape says: .*{words}"):
        Counted(kind="counted").tensors(HERE)


def test_a_shape_that_is_none_is_named_with_its_line() -> None:
    with pytest.raises(SuiteError, match=r"Told.describe gave .*give a bnpbench.DataShape\(") as error:
        shape_of(Told(kind="told"))
    assert error.value.file == Path(__file__)
    line = Path(__file__).read_text().splitlines()[(error.value.line or 0) - 1]
    assert "def describe(self) -> Any" in line


def test_images_are_prepared_by_what_is_trained_on() -> None:
    raw, ready = Pictures(kind="pictures").tensors(HERE), Pictures(kind="pictures", mean="pixel").tensors(HERE)
    torch.testing.assert_close(ready.train_x.mean(0), torch.zeros(1, 2, 2), atol=1e-6, rtol=0)
    torch.testing.assert_close(ready.test_x, raw.test_x - raw.train_x.mean(0))


def test_what_is_streamed_is_not_loaded_and_what_is_loaded_not_streamed() -> None:
    with pytest.raises(DataError, match="'streamed' is not kept in memory but streamed"):
        Streamed(kind="streamed").tensors(HERE)
    options: dict[str, Any] = {"train_limit": None, "validation": 0.0, "seed": 0, "augment": False}
    with pytest.raises(DataError, match="'counted' is kept in memory and not streamed"):
        Counted(kind="counted").open(HERE, device=torch.device("cpu"), memory_format=torch.contiguous_format, **options)


def test_a_data_set_without_files_is_always_there() -> None:
    assert Counted.missing(HERE) is Counted.damaged(HERE) is Counted.unfit(HERE) is None
    Counted.fetch(HERE)
    assert Counted.whence() == "Numbers, counted."
    assert Counted(kind="counted").found(HERE) == DataShape((2,), 3, 10, 4)


def test_what_cannot_be_brought_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "damaged", classmethod(lambda cls, root: "it is torn"))
    with pytest.raises(DataError, match="it is torn"):
        Counted.fetch(HERE)
    monkeypatch.setattr(Counted, "missing", classmethod(lambda cls, root: "it is gone"))
    assert Counted.unfit(HERE) == "it is gone"  # asked first


def test_a_class_that_says_nothing_is_refused() -> None:
    with pytest.raises(SuiteError, match=r"DatasetPlugin defines no describe\(\)"):
        DatasetPlugin(kind="x").describe()
    with pytest.raises(NotImplementedError, match=r"DatasetPlugin defines no load\(\)"):
        DatasetPlugin(kind="x").load()
