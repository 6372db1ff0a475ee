"""What is refused before torch is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench.errors import DataError, DeviceError, ResultsError
from bnpbench.execution import precheck
from bnpbench.registry import built_in
from bnpbench.results import check_writable


@pytest.mark.parametrize(("asked", "index"), [("auto", 0), ("cpu", None), ("cuda", 0), ("cuda:0", 0), ("cuda:13", 13)])
def test_the_number_of_a_device(asked: str, index: int | None) -> None:
    assert precheck.device_index(asked) == index


@pytest.mark.parametrize("asked", ["", "gpu", "cpu:0", "auto:", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "CUDA"])
def test_what_is_no_device(asked: str) -> None:
    with pytest.raises(DeviceError, match="auto, cpu, cuda or cuda:i"):
        precheck.device_index(asked)


@pytest.mark.parametrize(
    ("count", "asked", "words"),
    [
        (0, "cuda", "sees no CUDA device"),
        (2, "cuda:2", "has 2 CUDA"),
        (2, "cuda:1", None),
        (None, "cuda:9", None),  # only torch can tell
        (0, "cpu", None),
        (0, "auto", None),
    ],
)
def test_the_driver_is_asked_for_what_is_not_there(
    count: int | None, asked: str, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precheck, "driver_count", lambda: count)
    if words is None:
        precheck.check_device(asked, "--device")
    else:
        with pytest.raises(DeviceError, match=words):
            precheck.check_device(asked, "--device")


@pytest.mark.parametrize(
    ("asked", "count", "device"), [("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cpu", 2, "cpu"), ("cuda:1", 2, "cuda")]
)
def test_what_a_device_stands_for(asked: str, count: int, device: str) -> None:
    assert precheck.resolve_device(asked, count) == device


def test_a_device_that_torch_does_not_see() -> None:
    with pytest.raises(DeviceError, match="sees no CUDA device"):
        precheck.resolve_device("cuda", 0)


def test_without_a_driver_there_are_no_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(precheck, "CUDA_DRIVER", ("no-such-library.so",))
    monkeypatch.setattr(precheck, "ROCM", tmp_path / "none")
    assert precheck.driver_count() == 0
    monkeypatch.setattr(precheck, "ROCM", tmp_path)
    assert precheck.driver_count() is None


@pytest.mark.parametrize("kind", ["mnist", "cifar100", "imagenet"])
def test_data_that_may_not_be_fetched(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BNPBENCH_OFFLINE", raising=False)
    precheck.check_data({built_in().dataset(kind)}, tmp_path, offline=False)
    precheck.check_data({built_in().dataset(name) for name in ("digits", "synthetic")}, tmp_path, offline=True)
    with pytest.raises(DataError, match="--data-dir"):
        precheck.check_data({built_in().dataset(kind)}, tmp_path, offline=True)
    monkeypatch.setenv("BNPBENCH_OFFLINE", "1")
    with pytest.raises(DataError, match="is missing"):
        precheck.check_data({built_in().dataset(kind)}, tmp_path, offline=False)


def test_a_folder_for_results_is_tried_and_left_alone(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "deep")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="file"):
        check_writable(tmp_path / "file" / "below")
