"""The user's cache folder, and paths that begin at home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bnpbench.cache import expanded, user_cache
from bnpbench.datasets.storage import root


def test_without_a_home_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "BNPBENCH_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 12345)  # of nobody in the table of users
    with pytest.raises(OSError, match="Not a directory"):
        user_cache().mkdir(parents=True)
    assert root() == user_cache() / "data"


@pytest.mark.parametrize(
    ("platform", "variables", "place"),
    [
        ("linux", {}, "home/.cache/bnpbench"),
        ("linux", {"XDG_CACHE_HOME": "caches"}, "caches/bnpbench"),
        ("linux", {"XDG_CACHE_HOME": ""}, "home/.cache/bnpbench"),
        ("darwin", {}, "home/Library/Caches/bnpbench"),
    ],
)
def test_it_lies_where_the_systems_caches_do(
    platform: str, variables: dict[str, str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value and str(tmp_path / value))
    monkeypatch.setattr("sys.platform", platform)
    assert user_cache() == tmp_path / place


def test_only_home_folders_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("~/a/~") == tmp_path / "a" / "~"
    for path in ("a/~", "/~", "~nobody-of-this-name/a", "a"):
        assert expanded(path) == Path(path)
