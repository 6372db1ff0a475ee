"""Files that are written through no link, and the folder of a process that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bnpbench.files import appending, fresh
from tests.support.command import environment

HOLDING = """
import sys, tempfile
from multiprocessing.util import get_temp_dir
from bnpbench.files import private_folder
tempfile.tempdir = str(private_folder())
get_temp_dir()  # as for a forkserver
(private_folder() / "file").touch()
print(private_folder(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("target", ["treasure", "absent"])
def test_a_link_is_replaced_and_what_it_points_to_stays(target: str, tmp_path: Path) -> None:
    (tmp_path / "treasure").write_text("dear")
    for name in ("new", "log"):
        (tmp_path / name).symlink_to(tmp_path / target)
    fresh(tmp_path / "new").write_text("ours")
    with open(appending(tmp_path / "log"), "w") as log:
        log.write("ours")
    assert (tmp_path / "treasure").read_text() == "dear"
    assert not (tmp_path / "absent").exists()
    for name in ("new", "log"):
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_text() == "ours"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="No such device"):
        appending(tmp_path / "log")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for temporary files; its name is short, as that of a test's own is not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def holding(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has a folder of its own, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING],
        env=environment({"TMPDIR": str(place)}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_folder_of_a_process_that_was_killed_goes_with_the_next(place: Path) -> None:
    """Each kill left one for good."""
    strange = [place / ".bnpbench-file", place / ".bnpbench-link", place / "elsewhere" / "file"]
    strange[2].parent.mkdir()
    strange[2].touch()
    strange[0].touch()
    strange[1].symlink_to(strange[2].parent)
    alive, first = holding(place)
    killed, second = holding(place)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert first.stat().st_mode & 0o777 == 0o700
    assert first.parent == second.parent == place
    assert (second / "file").exists()
    ended, third = holding(place)
    assert not second.exists()
    assert (first / "file").exists(), "its process is there"
    assert ended.communicate() == ("", None), "nothing is said at the end"
    assert not third.exists()
    alive.communicate()
    assert not first.exists()
    assert all(path.exists() for path in strange)


def test_a_long_name_leaves_no_room_for_sockets(tmp_path: Path) -> None:
    place = tmp_path / ("t" * 60)
    place.mkdir()
    process, folder = holding(place)
    assert folder.parent == Path("/tmp")
    process.communicate()
    assert not folder.exists()
