"""What tests of the fused form share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bnpbench.bnp import fused
from bnpbench.bnp.fused import Layout
from tests.support.fused import Places


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Layout, Places]]:
    """What is to be compiled runs as it stands, and is listed."""
    asked: list[tuple[Layout, Places]] = []

    def taken(layout: Layout, places: Places) -> Callable[..., None]:
        asked.append((layout, places))
        return layout.step

    monkeypatch.setattr(fused, "compiled", taken)
    return asked
