"""Where data sets lie."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from bnpbench.cache import expanded, user_cache
from bnpbench.errors import DataError

VARIABLE = "BNPBENCH_DATA"
OFFLINE = "BNPBENCH_OFFLINE"

Told = Callable[[str, str], None]
"""Is told what is fetched, and how far it is, which is empty at its beginning."""


def _print(what: str, far: str) -> None:
    if not far:
        print(f"bnpbench: {what}", file=sys.stderr)


_told: ContextVar[Told] = ContextVar("told", default=_print)


@contextmanager
def told_to(told: Told) -> Iterator[None]:
    """What is fetched meanwhile is told to this, and its beginning not printed on stderr."""
    token = _told.set(told)
    try:
        yield
    finally:
        _told.reset(token)


def tell(what: str, far: str = "") -> None:
    """Something is fetched, and this far."""
    _told.get()(what, far)


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
