"""Commands as a terminal shows them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from tests.support.command import environment

ANSWERS = """
import shlex, sys
from bnpbench import cli
cli.interruption.listen = lambda: None
for line in sys.argv[1:]:
    sys.stdout.write("\\0" + line + "\\n")
    sys.argv = ["bnpbench", *shlex.split(line)]
    code = cli.run(shlex.split(line))
    sys.stdout.write(f"\\0{code}\\n")
    sys.stdout.flush()
"""
_SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def shown(commands: list[str], *, cwd: Path, columns: int, rows: int = 24) -> dict[str, tuple[int, str]]:
    """What each command line shows on a terminal of this size, one after another in one process, with its exit code."""
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    env = {name: value for name, value in environment({"TERM": "xterm"}).items() if name != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-c", ANSWERS, *commands], cwd=cwd, env=env, stdin=far, stdout=far, stderr=far
    ) as process:
        os.close(far)
        read = bytearray()
        try:
            while part := os.read(near, 65536):
                read += part
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(near)
    assert process.returncode == 0, read.decode(errors="replace")
    parts = _SEQUENCES.sub("", read.decode(errors="replace").replace("\r\n", "\n")).split("\0")[1:]
    found = {}
    for told, code in zip(parts[::2], parts[1::2], strict=True):
        line, _, text = told.partition("\n")
        found[line] = int(code.strip()), text
    return found
