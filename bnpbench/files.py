"""Files that are written where a stranger's links may lie: never through one."""

from __future__ import annotations

import os
from pathlib import Path


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
