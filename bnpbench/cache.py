"""Where bnpbench keeps what it can make again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache() -> Path:
    """bnpbench's folder among the user's caches: XDG's on Linux, Apple's on macOS."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "bnpbench"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "bnpbench"
