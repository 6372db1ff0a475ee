"""The standard streams: missing, full, abandoned."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from bnpbench.streams import columns, tell, unfailing

OPENED = """
import os, sys
from bnpbench.streams import open_missing
closed = [int(number) for number in sys.argv[1]]
for number in closed:
    os.close(number)
for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
    if number in closed:
        setattr(sys, name, None)  # as Python starts with them
open_missing()
for number in range(3):
    assert os.path.samestat(os.fstat(number), os.stat(os.devnull)) == (number in closed), number
assert os.open(sys.executable, os.O_RDONLY) > 2
print("an answer", flush=True)
print("words", file=sys.stderr, flush=True)
assert sys.stdin.read() == ""
"""


@pytest.mark.parametrize("closed", ["", "0", "1", "2", "01", "02", "12", "012"])
def test_what_is_closed_is_opened_on_the_null_device(closed: str, tmp_path: Path) -> None:
    """Else the next file would take its number, and what is printed would be written into it."""
    (tmp_path / "in").touch()
    with (tmp_path / "in").open() as empty:
        command = [sys.executable, "-c", OPENED, closed]
        done = subprocess.run(command, stdin=empty, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("" if "1" in closed else "an answer\n")
    assert done.stderr == ("" if "2" in closed else "words\n")


def test_what_a_full_disk_does_not_take_is_dropped() -> None:
    with open("/dev/full", "w") as full:
        stream = unfailing(full)
        print("nothing of this arrives", file=stream, flush=True)
        stream.close()


def test_a_stream_that_takes_all_gets_all(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as file:
        stream = unfailing(file)
        for number in range(1000):
            print(f"line {number} \udcff", file=stream)
        stream.close()
    lines = path.read_text(encoding=stream.encoding).splitlines()
    assert lines == [f"line {number} \\udcff" for number in range(1000)]


def test_what_is_told_on_a_terminal_is_folded_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    near, far = pty.openpty()
    monkeypatch.delenv("COLUMNS", raising=False)
    with open(far, "w") as terminal:
        termios.tcsetwinsize(far, (24, 30))
        assert columns(terminal) == 30
        monkeypatch.setattr(sys, "stderr", terminal)
        tell("words of which a line of thirty columns does not hold all")
    shown = os.read(near, 1000).decode()
    os.close(near)
    assert shown.splitlines() == ["words of which a line of", "thirty columns does not hold", "all"]
    with (tmp_path / "file").open("w") as file:
        assert columns(file) is None
    assert columns(None) is None
