"""bnpbench: what a normalization method costs and what it buys.

The public names are resolved on first use, so that the command line starts without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bnpbench.bnp import BNP
    from bnpbench.bnp.rewriter import Rewriter
    from bnpbench.datasets.base import DatasetPlugin, DataShape
    from bnpbench.execution.run import run_suite
    from bnpbench.initializations.base import InitializationPlugin
    from bnpbench.losses.base import LossPlugin
    from bnpbench.measure.flops import FlopCount
    from bnpbench.methods.base import Decay, Ink, MethodPlugin, Preconditioner, Published
    from bnpbench.methods.gradient import GradientPlugin
    from bnpbench.methods.preconditioning import Training
    from bnpbench.metrics.base import MetricPlugin
    from bnpbench.networks.base import NetworkPlugin
    from bnpbench.optimizers.base import OptimizerPlugin
    from bnpbench.report.compare import compare
    from bnpbench.results import Results, read_results
    from bnpbench.schedules.base import SchedulePlugin
    from bnpbench.sites import Misfit, Normalization, Site
    from bnpbench.suite import Suite, load_suite
    from bnpbench.theory import verify

_HOMES = {
    "BNP": "bnpbench.bnp",
    "DataShape": "bnpbench.datasets.base",
    "DatasetPlugin": "bnpbench.datasets.base",
    "Decay": "bnpbench.methods.base",
    "FlopCount": "bnpbench.measure.flops",
    "GradientPlugin": "bnpbench.methods.gradient",
    "InitializationPlugin": "bnpbench.initializations.base",
    "Ink": "bnpbench.methods.base",
    "LossPlugin": "bnpbench.losses.base",
    "MethodPlugin": "bnpbench.methods.base",
    "MetricPlugin": "bnpbench.metrics.base",
    "Misfit": "bnpbench.sites",
    "NetworkPlugin": "bnpbench.networks.base",
    "Normalization": "bnpbench.sites",
    "OptimizerPlugin": "bnpbench.optimizers.base",
    "Preconditioner": "bnpbench.methods.base",
    "Published": "bnpbench.methods.base",
    "Results": "bnpbench.results",
    "Rewriter": "bnpbench.bnp.rewriter",
    "SchedulePlugin": "bnpbench.schedules.base",
    "Site": "bnpbench.sites",
    "Suite": "bnpbench.suite",
    "Training": "bnpbench.methods.preconditioning",
    "compare": "bnpbench.report.compare",
    "load_suite": "bnpbench.suite",
    "read_results": "bnpbench.results",
    "run_suite": "bnpbench.execution.run",
    "verify": "bnpbench.theory",
}

__all__ = [
    "BNP",
    "DataShape",
    "DatasetPlugin",
    "Decay",
    "FlopCount",
    "GradientPlugin",
    "InitializationPlugin",
    "Ink",
    "LossPlugin",
    "MethodPlugin",
    "MetricPlugin",
    "Misfit",
    "NetworkPlugin",
    "Normalization",
    "OptimizerPlugin",
    "Preconditioner",
    "Published",
    "Results",
    "Rewriter",
    "SchedulePlugin",
    "Site",
    "Suite",
    "Training",
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
