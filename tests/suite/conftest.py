"""Ways to load a text as a suite."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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
def own_recursion_limit() -> Iterator[None]:
    """The interpreter's: torch's compiler raises it, and how deep a text may be nested depends on it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.fixture
def refuse(tmp_path: Path, own_recursion_limit: None) -> Refuse:
    """The error that a text is refused with."""

    def refuse(text: str | bytes) -> SuiteError:
        path = tmp_path / "small.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(SuiteError) as caught:
            load_suite(path)
        assert caught.value.file == path
        return caught.value

    return refuse
