"""The command line as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

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


def start(*arguments: str | Path, cwd: Path) -> subprocess.Popen[str]:
    """Start a command line in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "bnpbench", *map(str, arguments)],
        cwd=cwd,
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )


def environment(changes: dict[str, str] | None) -> dict[str, str]:
    """This process's variables without those that bnpbench reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BNPBENCH")}
    return {**kept, "COLUMNS": "200", **(changes or {})}


def suite(folder: Path, text: str = SUITE, name: str = "tiny.toml") -> Path:
    """Write a suite and give its path."""
    path = folder / name
    path.write_text(text)
    return path
