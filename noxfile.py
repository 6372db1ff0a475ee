"""Sessions: lint, types, tests, regression; baseline renews what regression compares with.

They run in the interpreter that started nox: torch is large, one environment holds it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "tests"]

BIN = Path(sys.executable).parent


@nox.session
def lint(session: nox.Session) -> None:
    """Style, formatting, and the direction of imports."""
    session.run(sys.executable, "-m", "ruff", "check", ".")
    session.run(sys.executable, "-m", "ruff", "format", "--check", ".")
    session.run(str(BIN / "lint-imports"))


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict, on the package."""
    session.run(sys.executable, "-m", "mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """The tests; those that need real data skip unless BNPBENCH_DATA names their folder."""
    session.run(sys.executable, "-m", "pytest", *session.posargs)
