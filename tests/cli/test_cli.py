"""The command line as a whole: exit codes of what goes wrong, streams, a light start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bnpbench import cli
from bnpbench.errors import NothingToCompare
from tests.support.command import bnpbench, called, suite


def raising(error: BaseException) -> Callable[..., None]:
    """An app that ends so."""

    def app(*arguments: object, **options: object) -> None:
        print("half an answer")
        raise error

    return app


def test_a_bug_is_told_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cli, "app", raising(ZeroDivisionError("no such number")))
    done = called("report", cwd=tmp_path)
    assert done.returncode == 70
    assert "a bug in bnpbench: ZeroDivisionError: no such number" in done.stderr
    assert "Traceback" not in done.stderr
    done = called("--debug", "report", cwd=tmp_path)
    assert done.returncode == 70
    assert "Traceback" in done.stderr


@pytest.mark.regression
def test_a_bug_says_how_to_see_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cli, "app", raising(ZeroDivisionError()))
    assert "`bnpbench --debug COMMAND ...` shows where" in called("report", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (NothingToCompare("nothing here"), 4, "bnpbench: nothing here\n"),
        (NothingToCompare("a\x1b[2J\nb"), 4, "bnpbench: a\\x1b[2J\nb\n"),  # no file's name clears a terminal
        (OSError(28, "No space left on device", "/there/x"), 2, "/there/x: No space left on device"),
        (SystemExit(0), 0, ""),
        (SystemExit("words"), 1, ""),
        (SystemExit(None), 0, ""),
    ],
    ids=str,
)
def test_how_a_command_ends_decides_the_code(
    error: BaseException, code: int, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "app", raising(error))
    done = called("report", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "half an answer\n")
    assert told in done.stderr
    assert bool(told) == bool(done.stderr)


def test_the_command_line_starts_light() -> None:
    code = (
        "import sys, bnpbench, bnpbench.cli; heavy = {'torch', 'pandas', 'pydantic', 'rich'}; "
        "found = heavy & {name.partition('.')[0] for name in sys.modules}; sys.exit(', '.join(found) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_of_the_installed_command(tmp_path: Path) -> None:
    done = bnpbench("--help", cwd=tmp_path)
    assert done.returncode == 0
    for command in ("run", "report", "compare", "check", "new", "data", "env"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["run"], "SUITE"),
        (["run", "nosuch"], "nosuch"),
        (["run", "tiny.toml", "--jobs", "0"], "--jobs"),
        (["run", "tiny.toml", "-v"], "-v"),
        (["run", "tiny.toml", "--shard", "3/2"], "--shard 3/2"),
        (["run", "tiny.toml", "--only", "batch_size=7"], "batch_size"),
        (["compare", "."], "new"),
        (["nosuch"], "nosuch"),
        (["new", "../up"], "../up"),
        (["check"], "check"),
    ],
)
def test_wrong_usage(arguments: list[str], word: str, tmp_path: Path) -> None:
    suite(tmp_path)
    done = called(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr
