"""Fixtures of the report's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.made_results import Made


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Made]:
    """Makes results in a folder of their own."""

    def made(folder: str = "results", **options: Any) -> Made:
        return Made(tmp_path / folder, **options)

    return made
