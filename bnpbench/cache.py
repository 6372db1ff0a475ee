"""The user's folders: home, and where bnpbench keeps what it can make again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache() -> Path:
    """bnpbench's folder among the user's caches: XDG's on Linux, Apple's on macOS.

    Without a home folder it is one that cannot be: nothing is kept, and nobody else's files are taken.
    """
    if os.environ.get("XDG_CACHE_HOME"):
        return expanded(os.environ["XDG_CACHE_HOME"]) / "bnpbench"
    home = expanded("~")
    if home == Path("~"):
        return Path(os.devnull, "no-home-folder")
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "bnpbench"


def expanded(path: str | Path) -> Path:
    """A path as a user writes it: ``~`` and ``~name`` are home folders where there are such."""
    return Path(os.path.expanduser(path))
