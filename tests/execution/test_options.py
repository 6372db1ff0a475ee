"""What a run is asked, and what of it is refused before torch is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.errors import DataError, DeviceError, ResultsError
from bnpbench.execution import options
from bnpbench.execution.executor import usable_cores
from bnpbench.measure.environment import describe
from bnpbench.registry import built_in
from bnpbench.results import check_writable
from tests.support.command import SUITE, suite
from tests.support.training import cell


@pytest.mark.parametrize(("asked", "index"), [("auto", 0), ("cpu", None), ("cuda", 0), ("cuda:0", 0), ("cuda:13", 13)])
def test_the_number_of_a_device(asked: str, index: int | None) -> None:
    assert options.device_index(asked) == index


@pytest.mark.parametrize("asked", ["", "gpu", "cpu:0", "auto:", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "CUDA"])
def test_what_is_no_device(asked: str) -> None:
    with pytest.raises(DeviceError, match="auto, cpu, cuda or cuda:i"):
        options.device_index(asked)


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
def test_the_driver_is_asked_for_what_is_not_there(count: int | None, asked: str, words: str | None) -> None:
    if words is None:
        options.check_device(asked, "--device", count=lambda: count)
    else:
        with pytest.raises(DeviceError, match=words):
            options.check_device(asked, "--device", count=lambda: count)


@pytest.mark.parametrize(
    ("asked", "count", "device"), [("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cpu", 2, "cpu"), ("cuda:1", 2, "cuda")]
)
def test_what_a_device_stands_for(asked: str, count: int, device: str) -> None:
    assert options.resolve_device(asked, count) == device


def test_a_device_that_torch_does_not_see() -> None:
    with pytest.raises(DeviceError, match="sees no CUDA device"):
        options.resolve_device("cuda", 0)


@pytest.mark.parametrize("kind", ["mnist", "cifar100", "imagenet"])
def test_data_that_may_not_be_fetched(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BNPBENCH_OFFLINE", raising=False)
    options.check_data({built_in().dataset(kind)}, tmp_path, offline=False)
    options.check_data({built_in().dataset(name) for name in ("digits", "synthetic")}, tmp_path, offline=True)
    with pytest.raises(DataError, match="--data-dir"):
        options.check_data({built_in().dataset(kind)}, tmp_path, offline=True)
    monkeypatch.setenv("BNPBENCH_OFFLINE", "1")
    with pytest.raises(DataError, match="is missing"):
        options.check_data({built_in().dataset(kind)}, tmp_path, offline=False)


def test_a_folder_for_results_is_tried_and_left_alone(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "deep")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="file"):
        check_writable(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("devices", "device", "first", "words"),
    [
        (4, "cuda", 0, None),
        (5, "cuda", 0, "4 CUDA devices, 4 from cuda:0"),
        (3, "cuda", 2, "4 CUDA devices, 2 from cuda:2"),
        (2, "cpu", 0, None),
        (3, "cpu", 0, "a cell has 2"),
        (1, "cuda", 9, None),  # told of elsewhere
    ],
)
def test_how_many_devices_a_cell_can_have(devices: int, device: str, first: int, words: str | None) -> None:
    if words is None:
        options.demand_devices(devices, device, first=first, gpus=4, cores=2)
    else:
        with pytest.raises(DeviceError, match=words):
            options.demand_devices(devices, device, first=first, gpus=4, cores=2)


SHARED = SUITE.replace("threads = 1\n", "")


def test_cells_are_expanded_once(tmp_path: Path) -> None:
    selection = options.Options(device="cpu").selection(load_suite(suite(tmp_path)))
    assert selection.on("cpu", selection.threads) is selection
    assert selection.whole is selection
    part = options.Options(device="cpu", only=("method=bnp",), seeds=1).selection(selection.suite)
    assert (len(part.cells), len(part.whole.cells)) == (1, 4)
    assert {id(cell) for cell in part.cells} <= {id(cell) for cell in selection.cells}


def test_what_is_checked_is_what_is_run(tmp_path: Path) -> None:
    """Where torch agrees on the device, and a child on the cores."""
    loaded = load_suite(suite(tmp_path, SHARED))
    cores = len(usable_cores(describe()))
    for jobs in (1, cores):
        asked = options.Options(out=tmp_path / "out", device="cpu", jobs=jobs)
        assert options.check(loaded, asked).threads == cores // jobs


@pytest.mark.regression
def test_threads_that_stand_for_auto_may_be_asked_for(tmp_path: Path) -> None:
    """Before anything ran a cell was taken to have one thread, and `--only threads=2` was refused on two cores."""
    loaded = load_suite(suite(tmp_path, SHARED))
    cores = len(usable_cores(describe()))
    asked = options.Options(out=tmp_path / "out", device="cpu", only=(f"threads={cores}",))
    assert len(options.check(loaded, asked).cells) == 4


@pytest.mark.regression
@pytest.mark.parametrize(("capability", "refused"), [("7.5", True), ("8.0", False), ("12.0", False), (None, False)])
def test_tf32_is_refused_where_there_is_none(capability: str | None, refused: bool) -> None:
    """A GPU before 8.0 computed in float32 under the name of tf32."""
    settings = cell(device="cuda", precision="tf32").settings
    if refused:
        with pytest.raises(DeviceError, match=r"compute capability 7\.5"):
            options.check_cuda_only([settings], capability)
    else:
        options.check_cuda_only([settings], capability)
    options.check_cuda_only([cell(device="cuda").settings], capability)


@pytest.mark.regression
def test_a_driver_that_torch_cannot_work_with_is_named() -> None:
    """It was said that torch sees no device, whatever the reason."""
    with pytest.raises(DeviceError, match="--device cuda: the driver is too old; use --device cpu"):
        options.resolve_device("cuda", 0, "the driver is too old")
    assert options.resolve_device("auto", 0, "the driver is too old") == "cpu"
