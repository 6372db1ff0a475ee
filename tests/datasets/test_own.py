"""Data of the user's own: where a suite's paths lead, and what is told of other data."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from bnpbench import load_suite
from bnpbench.errors import DataError, SuiteError
from tests.support.command import called
from tests.support.own_data import SUITE, arrays, save, suite


def test_a_path_is_relative_to_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = suite(tmp_path / "inner", '{ kind = "npz", path = "../data.npz" }')
    save(tmp_path / "data.npz")
    monkeypatch.chdir(path.parent)
    (cell, *_) = load_suite(Path(path.name)).cells(device="cpu", threads=1)
    (same, *_) = load_suite(path).cells(device="cpu", threads=1)
    assert cell.key == same.key
    assert str(tmp_path) not in cell.canonical
    assert cell.settings.dataset.tensors(Path("nowhere")).train_x.shape == (30, 1, 8, 8)


def test_other_data_are_another_cell(tmp_path: Path) -> None:
    path = suite(tmp_path, '{ kind = "npz", path = "data.npz" }')
    keys = []
    for seed in (1, 1, 2):
        save(tmp_path / "data.npz", seed=seed)
        keys.append(load_suite(path).cells(device="cpu", threads=1)[0].key)
    assert keys[0] == keys[1] != keys[2]


def test_a_path_is_part_of_a_cell_and_the_folder_of_the_suite_is_not(tmp_path: Path) -> None:
    keys = []
    for folder, name in (("one", "data.npz"), ("other", "data.npz"), ("other", "same.npz")):
        (tmp_path / folder).mkdir(exist_ok=True)
        save(tmp_path / folder / name)
        path = suite(tmp_path / folder, f'{{ kind = "npz", path = "{name}" }}')
        keys.append({cell.key for cell in load_suite(path).cells(device="cpu", threads=1)})
    assert keys[0] == keys[1]
    assert not keys[1] & keys[2]


def test_a_suite_may_say_which_content_it_is_about(tmp_path: Path) -> None:
    save(tmp_path / "data.npz")
    path = suite(tmp_path, '{ kind = "npz", path = "data.npz" }')
    content = load_suite(path).cells(device="cpu", threads=1)[0].settings.dataset.model_dump()["content"]
    load_suite(suite(tmp_path, f'{{ kind = "npz", path = "data.npz", content = "{content}" }}'))
    with pytest.raises(SuiteError, match=f"its content is '{content}'"):
        load_suite(suite(tmp_path, '{ kind = "npz", path = "data.npz", content = "0123" }'))


def test_data_that_change_while_a_run_goes_on_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "data.npz")
    (cell, *_) = load_suite(suite(tmp_path, '{ kind = "npz", path = "data.npz" }')).cells(device="cpu", threads=1)
    save(tmp_path / "data.npz", seed=5)
    with pytest.raises(DataError, match="changed since the suite was read"):
        cell.settings.dataset.tensors(tmp_path)


@pytest.mark.parametrize("kind", ["npz", "folder"])
def test_what_is_wrong_is_told_with_its_line(kind: str, tmp_path: Path) -> None:
    path = suite(tmp_path, f'{{ kind = "{kind}", path = "nothing" }}')
    with pytest.raises(SuiteError) as error:
        load_suite(path)
    line = next(number for number, text in enumerate(SUITE.splitlines(), 1) if text.startswith("dataset"))
    assert (error.value.line, error.value.key) == (line, "train.dataset.path")
    assert str(tmp_path / "nothing") in str(error.value)
    assert "relative to the suite's folder" in str(error.value)


def test_an_absolute_path_is_refused_with_the_relative_one(tmp_path: Path) -> None:
    save(tmp_path / "data.npz")
    with pytest.raises(SuiteError, match=r"it is '\.\./data\.npz'"):
        load_suite(suite(tmp_path / "inner", f'{{ kind = "npz", path = "{tmp_path}/data.npz" }}'))


def test_two_files_in_one_suite_are_told_apart_and_picked(tmp_path: Path) -> None:
    for seed, name in enumerate("ab"):
        save(tmp_path / f"{name}.npz", seed=seed)
    text = SUITE.replace("DATA", '{ kind = "npz", path = "a.npz" }').replace(
        "[sweep]", '[sweep]\ndataset.path = ["a.npz", "b.npz"]'
    )
    (tmp_path / "two.toml").write_text(text)
    done = called("run", "two.toml", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a.npz" in done.stdout
    assert "b.npz" in done.stdout
    assert str(tmp_path) not in (tmp_path / "results/own/suite.json").read_text()


def test_a_damaged_file_ends_a_run_before_it_begins(tmp_path: Path) -> None:
    """All arrays but one are whole, which only reading shows."""
    save(tmp_path / "data.npz")
    content = bytearray((tmp_path / "data.npz").read_bytes())
    content[200:260] = bytes(60)  # within x_train
    (tmp_path / "data.npz").write_bytes(content)
    suite(tmp_path, '{ kind = "npz", path = "data.npz" }')
    done = called("run", "own.toml", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 2
    assert "is no whole .npz file" in done.stderr


def test_they_are_listed_and_nothing_fetches_them(tmp_path: Path) -> None:
    done = called("data", cwd=tmp_path)
    lines = {line.split()[0]: line for line in done.stdout.splitlines()[2:] if line}
    for kind in ("npz", "folder"):
        assert "by path" in lines[kind]
        assert f'kind = "{kind}"' in lines[kind]
        assert kind in called("list", "datasets", cwd=tmp_path).stdout
        got = called("data", "get", kind, cwd=tmp_path)
        assert (got.returncode, "lies where a suite says" in got.stdout) == (0, True)
        tried = called("verify", "--data", kind, "--trials", "1", cwd=tmp_path)
        assert (tried.returncode, "a suite says where it lies" in tried.stderr) == (2, True)


def test_data_of_another_place_are_the_same_cells(tmp_path: Path) -> None:
    """A folder that holds the suite and its data may be moved."""
    save(tmp_path / "one/data.npz")
    first = load_suite(suite(tmp_path / "one", '{ kind = "npz", path = "data.npz" }')).cells(device="cpu", threads=1)
    shutil.move(tmp_path / "one", tmp_path / "two")
    assert [cell.key for cell in load_suite(tmp_path / "two/own.toml").cells(device="cpu", threads=1)] == [
        cell.key for cell in first
    ]
    assert np.load(tmp_path / "two/data.npz").files == list(arrays())
