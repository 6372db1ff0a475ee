"""The user's cache folder, and paths that begin at home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bnpbench import cli
from bnpbench.cache import user_cache
from bnpbench.datasets.storage import root


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.interruption, "listen", lambda: None)  # the handlers are not for this process


def test_without_a_home_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "BNPBENCH_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 12345)  # of nobody in the table of users
    with pytest.raises(OSError, match="Not a directory"):
        user_cache().mkdir(parents=True)
    assert root() == user_cache() / "data"
