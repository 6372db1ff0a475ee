"""Fixtures of the report's tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.made_results import Made

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Made]:
    """Makes results in a folder of their own."""

    def made(folder: str = "results", **options: Any) -> Made:
        return Made(tmp_path / folder, **options)

    return made


@pytest.fixture
def snapshot() -> Callable[[str, str], None]:
    """Compares text with a stored file; BNPBENCH_UPDATE_SNAPSHOTS=1 stores it anew."""

    def check(name: str, text: str) -> None:
        path = SNAPSHOTS / name
        if os.environ.get("BNPBENCH_UPDATE_SNAPSHOTS"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check
