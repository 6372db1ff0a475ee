"""Sessions: lint, types, tests, regression; on demand ``baseline``, which renews what regression compares with,
``mockgpu``, the control flow of CUDA without a GPU, and ``gpu``, for a machine that has one.

They run in the interpreter that started nox: torch is large, one environment holds it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "tests", "regression"]

BIN = Path(sys.executable).parent
BASELINE = Path("reports/baseline-10")  # by the measurement it was made with; earlier ones stay, to be read
PARALLEL = ["-n", "auto", "--maxprocesses", "4", "--dist", "loadfile", "--no-loadscope-reorder"]
# Two runs of unchanged code differed by up to 12 % in a ratio to vanilla on a shared two-core machine, their 95 %
# intervals by +-8 %; none of 12 lay above 1. So an interval wholly above 1.1 has another cause.
MAX_SLOWDOWN = "10%"


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
    if session.posargs:
        session.run(sys.executable, "-m", "pytest", *session.posargs)
        return
    session.run(sys.executable, "-m", "pytest", "-m", "not alone and not compiles", *PARALLEL)
    session.run(sys.executable, "-m", "pytest", "-m", "alone")


@nox.session
def mockgpu(session: nox.Session) -> None:
    """Everything on a mock GPU but a Ray cluster, with every method's step compiled and recorded."""
    spread = ["-n", "auto", "--maxprocesses", "4", "--dist", "worksteal"]  # one file compiles for most of the time
    session.run(sys.executable, "-m", "pytest", "tests/mockgpu", "-m", "not alone", *spread, *session.posargs)


@nox.session
def regression(session: nox.Session) -> None:
    """Run the regression suite and compare with the baseline; on other hardware, or where it was measured otherwise,
    what does not depend on that."""
    new = Path(session.create_tmp()) / "regression"
    bnpbench(session, "run", "suites/regression.toml", "--out", str(new), "--fresh", "--quiet")
    same = hardware(new) == hardware(BASELINE)
    options = [] if same else ["--across-machines"]
    bnpbench(session, "compare", str(BASELINE), str(new), "--max-slowdown", MAX_SLOWDOWN, *options)


@nox.session
def baseline(session: nox.Session) -> None:
    """Measure the baseline anew, on an idle machine."""
    shutil.rmtree(BASELINE, ignore_errors=True)
    bnpbench(session, "run", "suites/regression.toml", "--out", str(BASELINE), "--fresh")
    bnpbench(session, "compact", str(BASELINE))
    for folder in BASELINE.glob("*/*/"):
        for leftover in ("logs", "locks", "cells", "epochs", "steps", "checkpoints"):
            shutil.rmtree(folder / leftover, ignore_errors=True)


@nox.session
def gpu(session: nox.Session) -> None:
    """The CUDA tests, a profile, timings, the crossing: under 9 minutes on one H100, packed into one archive."""
    session.run(sys.executable, "tests/benchmarks/gpu.py", *session.posargs)


def bnpbench(session: nox.Session, *arguments: str) -> None:
    session.run(sys.executable, "-m", "bnpbench", *arguments)


def hardware(results: Path) -> list[object]:
    """The hardware of every environment under a folder of results."""
    found = sorted(results.glob("*/*/environment.json"))
    return [json.loads(path.read_text())["hardware"] for path in found]
