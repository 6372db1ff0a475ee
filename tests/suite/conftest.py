"""Ways to load a text as a suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bnpbench.errors import SuiteError
from bnpbench.suite import Suite, load_suite

Load = Callable[[str], Suite]
Refuse = Callable[[str | bytes], SuiteError]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a text as a suite."""

    def load(text: str) -> Suite:
        path = tmp_path / "small.toml"
        path.write_text(text, encoding="utf-8")
        return load_suite(path)

    return load


@pytest.fixture
def refuse(tmp_path: Path) -> Refuse:
    """The error that a text is refused with."""

    def refuse(text: str | bytes) -> SuiteError:
        path = tmp_path / "small.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(SuiteError) as caught:
            load_suite(path)
        assert caught.value.file == path
        return caught.value

    return refuse
