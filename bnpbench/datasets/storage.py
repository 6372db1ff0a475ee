"""Where data sets lie."""

from __future__ import annotations

import os
from pathlib import Path

from bnpbench.cache import expanded, user_cache
from bnpbench.errors import DataError

VARIABLE = "BNPBENCH_DATA"
OFFLINE = "BNPBENCH_OFFLINE"


def root(flag: Path | None = None) -> Path:
    """The folder of the data sets: the flag, else ``BNPBENCH_DATA``, else the user's cache folder."""
    if flag is not None:
        return expanded(flag)
    if os.environ.get(VARIABLE):
        return expanded(os.environ[VARIABLE])
    return user_cache() / "data"


def is_offline(flag: bool = False) -> bool:
    """Whether nothing may be fetched: by the flag, or by ``BNPBENCH_OFFLINE=1``."""
    return flag or os.environ.get(OFFLINE, "") not in ("", "0")


def prepare(folder: Path) -> None:
    """Create ``folder``, for the user alone where it is new.

    Raises:
        DataError: it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"the data folder {folder} cannot be created ({error.strerror}); choose another by --data-dir or {VARIABLE}"
        ) from error
    if not os.access(folder, os.W_OK):
        raise DataError(f"the data folder {folder} cannot be written; choose another by --data-dir or {VARIABLE}")
