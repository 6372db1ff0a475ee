"""Files that are written where a stranger's links may lie, never through one; and a place for those that go again."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path

_PREFIX = ".bnpbench-"  # and eight random characters
_AFTER_SOCKETS = -200  # multiprocessing removes its own folder, which is in ours, at -100
_LONGEST = 50  # bytes of the name of the folder for temporary files: a socket's, three names below, has room for 104


def fresh(path: Path) -> Path:
    """``path`` as a new, empty file. What bore the name is removed: of a link the link itself. Raises OSError."""
    path.unlink(missing_ok=True)
    path.touch(exist_ok=False)
    return path


def appending(path: Path) -> int:
    """A descriptor of a file to append to, made where there is none; a link goes first, a pipe is an OSError."""
    if path.is_symlink():
        path.unlink()
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)


@functools.cache
def private_folder() -> Path:
    """This process's folder for temporary files, which nobody else can enter; it goes with the process.

    A process that is killed leaves its folder to the next one that makes its own: the lock on it tells that nobody is
    there. It lies below /tmp where the name of the usual place leaves no room for sockets.

    Raises:
        OSError: none can be made.
    """
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) > _LONGEST:
        place = "/tmp"
    for left in Path(place).glob(f"{_PREFIX}*"):
        if (lock := _locked(left, wait=False)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    while True:
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        if _locked(made, wait=True) is not None:  # else another process has just taken it for one that was left
            Finalize(None, shutil.rmtree, (made,), {"ignore_errors": True}, exitpriority=_AFTER_SOCKETS)
            return made


def remove_private_folder() -> None:
    """Where there is one: for whoever ends the process otherwise than the interpreter does."""
    if private_folder.cache_info().currsize:
        shutil.rmtree(private_folder(), ignore_errors=True)
        private_folder.cache_clear()


def _locked(folder: Path, *, wait: bool) -> int | None:
    """A descriptor that locks a folder until it is closed; None where it is locked, gone or not this user's."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and os.path.samestat(status, os.lstat(folder)):
            return descriptor
    os.close(descriptor)
    return None
