"""The version of bnpbench."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__version__: str | None
"""None where it runs from a checkout that is not installed."""

try:
    __version__ = version("bnpbench")
except PackageNotFoundError:
    __version__ = None
