"""Errors: where they are, what they say, and what of the machine's is no bug."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnpbench import errors
from bnpbench.errors import BnpbenchError, SuiteError, refused


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (MemoryError(), "ulimit -v"),
        (RuntimeError("can't start new thread"), "ulimit -v"),
        (OSError(28, "No space left on device", "/there/x"), "/there/x: No space left on device"),
        (OSError("AF_UNIX path too long"), "AF_UNIX path too long"),
        (ImportError("failed to map segment", name="libx"), "failed to map segment"),
        (ImportError("no such name", name="bnpbench.nothing"), None),
        (RuntimeError("something else"), None),
        (KeyError("x"), None),
    ],
)
def test_what_the_machine_refuses_is_no_bug(error: Exception, word: str | None) -> None:
    refusal = refused(error)
    assert (refusal is None) == (word is None)
    if refusal is not None and word is not None:
        assert word in str(refusal)
        assert refusal.exit_code == 2


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({}, "no such method"),
        ({"file": Path("a.toml")}, "a.toml: no such method"),
        ({"file": Path("a.toml"), "line": 7}, "a.toml:7: no such method"),
        ({"file": Path("a.toml"), "line": 7, "key": "train.method"}, "a.toml:7: train.method: no such method"),
        ({"key": "train.method"}, "train.method: no such method"),
        ({"line": 7, "closest": "bnp"}, "7: no such method (did you mean 'bnp'?)"),
    ],
)
def test_an_error_of_a_suite_says_where_it_is(place: dict[str, Any], text: str) -> None:
    error = SuiteError("no such method", **place)
    assert str(error) == text
    assert error.message == "no such method"
    assert all(getattr(error, name) == value for name, value in place.items())


def test_each_error_has_its_exit_code() -> None:
    """2: before anything ran; 3: cells are not measured; 4: no data for the question."""
    found = {
        name: thing.exit_code
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, BnpbenchError)
    }
    others = {name: code for name, code in found.items() if code != 2}
    assert others == {"WorkersLost": 3, "NothingToCompare": 4}
    assert {"SuiteError", "DataError", "DeviceError", "ResultsError", "NotApplicable"} < found.keys()


def test_a_file_is_named_as_it_is_spelt() -> None:
    """Also one whose name is given in bytes, as by the lowest calls."""
    refusal = refused(PermissionError(13, "Permission denied", b"/there/x"))
    assert str(refusal) == "/there/x: Permission denied; make room or raise the limit there, or name another place"
