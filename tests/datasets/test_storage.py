"""Where data sets lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bnpbench.datasets import storage
from bnpbench.errors import DataError


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


@pytest.mark.parametrize(
    ("flag", "variable", "offline"),
    [
        (False, None, False),
        (True, None, True),
        (False, "1", True),
        (False, "0", False),
        (False, "", False),
        (True, "0", True),
    ],
)
def test_offline_is_a_flag_or_a_variable(
    flag: bool, variable: str | None, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BNPBENCH_OFFLINE", raising=False)
    if variable is not None:
        monkeypatch.setenv("BNPBENCH_OFFLINE", variable)
    assert storage.is_offline(flag) is offline


def test_a_new_folder_is_the_users_alone_and_an_old_one_stays_as_it_is(tmp_path: Path) -> None:
    storage.prepare(tmp_path / "a" / "new")
    assert (tmp_path / "a" / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "old").mkdir(mode=0o755)
    storage.prepare(tmp_path / "old")
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o755


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(DataError, match=r"cannot be written; choose another by --data-dir or BNPBENCH_DATA"):
        storage.prepare(tmp_path)


@pytest.mark.parametrize("below", ["new", "new/deeper"])
def test_a_folder_that_cannot_be_made_is_an_error(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        DataError, match=r"file/new.*cannot be created \(Not a directory\); choose another by --data-dir"
    ):
        storage.prepare(tmp_path / "file" / below)
