"""The commands that there are, and the options that all have."""

from __future__ import annotations

import re
import runpy
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import bnpbench.version
from bnpbench.cli.app import app
from tests.support.command import called


def test_the_version_is_the_installed_ones(tmp_path: Path) -> None:
    done = called("--version", "nosuch", cwd=tmp_path)  # asked for before anything else
    assert (done.returncode, done.stdout) == (0, f"bnpbench {version('bnpbench')}\n")


@pytest.mark.regression
def test_a_checkout_that_is_not_installed_has_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was called a bug."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    with monkeypatch.context() as uninstalled:
        uninstalled.setattr("importlib.metadata.version", missing)
        assert runpy.run_path(bnpbench.version.__file__)["__version__"] is None
    monkeypatch.setattr("bnpbench.version.__version__", None)
    done = called("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "bnpbench that is not installed\n")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_explains_itself(option: str, tmp_path: Path) -> None:
    names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    assert names == ["run", "report", "compare", "verify", "profile", "check", "new", "env", "compact", "list"]
    for words in [*([name] for name in names), ["data"], ["data", "get"]]:
        done = called(*words, option, cwd=tmp_path)
        assert done.returncode == 0
        assert re.sub(r"\s+", " ", done.stdout).lstrip().startswith(f"Usage: python -m bnpbench {' '.join(words)} "), (
            done.stdout
        )


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--epochs", "0", "must be at least 1"),
        ("--jobs", "two", "must be a whole number"),
        ("--timeout", "long", "must be a number"),
    ],
)
def test_a_value_that_does_not_fit_is_told_in_words_of_our_own(
    option: str, value: str, words: str, tmp_path: Path
) -> None:
    done = called("run", "quick", option, value, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"bnpbench: Invalid value for '{option}': {words}\n")
