"""The command line as a user starts it, in a process of its own or in this one."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bnpbench import cli

SUITE = """
name = "tiny"
[train]
dataset = { kind = "synthetic", shape = [12], train = 203, test = 50, classes = 4 }
network = { kind = "fc", hidden = [9, 8] }
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 10
epochs = 2
threads = 1
[sweep]
method = ["vanilla", "bnp"]
seed = [1, 2]
"""
LONG = """
name = "long"
[train]
dataset = { kind = "synthetic", shape = [12], train = 1000, test = 50, classes = 4 }
network = { kind = "fc", hidden = [9, 8] }
optimizer = { kind = "sgd", lr = 0.01, momentum = 0.9 }
method = "bnp"
batch_size = 1
epochs = 8
threads = 1
"""


def numbers(start: int, before: str = "", after: str = "") -> str:
    """A TOML list of a thousand numbers, one a line."""
    return "[" + ",\n".join(f"{before}{n}{after}" for n in range(start, start + 1000)) + "]"


# Suites that are refused, and words of the message.
WRONG = {
    "misspelt key": (SUITE.replace("epochs = 2", "epoch = 2"), ("tiny.toml:8", "epoch", "epochs")),
    "unknown method": (SUITE.replace('"bnp"', '"bpn"'), ("tiny.toml:11", "bpn", "bnp")),
    "scalar axis": (SUITE.replace("seed = [1, 2]", "seed = 1"), ("tiny.toml:12", "seed", "list")),
    "batch above data": (
        SUITE.replace("batch_size = 10", "batch_size = 1000"),
        ("tiny.toml:7", "batch_size", "1,000", "203"),
    ),
    "long dotted key": (SUITE + "a." * 20_000 + "b = 1\n", ("tiny.toml", "2,000 characters")),
    "nested brackets": (SUITE + "x = " + "[" * 500 + "]" * 500 + "\n", ("tiny.toml", "nest")),
    "a million cells": (
        SUITE.replace("seed = [1, 2]", f"seed = {numbers(0)}\nnetwork.hidden = {numbers(1, '[', ']')}"),
        ("tiny.toml", "10,000"),
    ),
}


def bnpbench(
    *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "bnpbench", *map(str, arguments)],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def called(*arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command line in this process, which costs no start and no imports; signals are not listened to."""
    words = list(map(str, arguments))
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(cwd)
        kept = environment(env)
        for name in os.environ.keys() - kept.keys():
            patch.delenv(name)
        for name, value in kept.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", [str(Path(cli.__file__).parents[1] / "__main__.py"), *words])
        patch.setattr(sys.modules["__main__"], "__package__", "bnpbench")  # usage is told as of `python -m bnpbench`
        patch.setattr(cli.interruption, "listen", lambda: None)
        try:
            code = cli.run(words)
        finally:
            gc.enable()  # a report turns it off: its process ends soon
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def started(*arguments: str | Path, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A command line at work, in a process group of its own, of which nothing is left behind."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bnpbench", *map(str, arguments)],
        cwd=cwd,
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def environment(changes: dict[str, str] | None) -> dict[str, str]:
    """This process's variables without those that bnpbench reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BNPBENCH")}
    return {**kept, "COLUMNS": "200", **(changes or {})}


def suite(folder: Path, text: str = SUITE, name: str = "tiny.toml") -> Path:
    """Write a suite and give its path."""
    path = folder / name
    path.write_text(text)
    return path
