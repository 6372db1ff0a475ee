"""bnpbench: what a normalization method costs and what it buys.

The public names are resolved on first use, so that the command line starts without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bnpbench.bnp import BNP
    from bnpbench.execution.run import run_suite
    from bnpbench.measure.flops import FlopCount
    from bnpbench.report import compare
    from bnpbench.results import Results, read_results
    from bnpbench.suite import DatasetPlugin, MethodPlugin, NetworkPlugin, Suite, load_suite
    from bnpbench.theory import verify

_HOMES = {
    "BNP": "bnpbench.bnp",
    "DatasetPlugin": "bnpbench.suite",
    "FlopCount": "bnpbench.measure.flops",
    "MethodPlugin": "bnpbench.suite",
    "NetworkPlugin": "bnpbench.suite",
    "Results": "bnpbench.results",
    "Suite": "bnpbench.suite",
    "compare": "bnpbench.report",
    "load_suite": "bnpbench.suite",
    "read_results": "bnpbench.results",
    "run_suite": "bnpbench.execution.run",
    "verify": "bnpbench.theory",
}

__all__ = [
    "BNP",
    "DatasetPlugin",
    "FlopCount",
    "MethodPlugin",
    "NetworkPlugin",
    "Results",
    "Suite",
    "compare",
    "load_suite",
    "read_results",
    "run_suite",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'bnpbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
