"""Runs suites: blocks onto child processes, rows into the store."""

from bnpbench.execution.options import Options, Outcome
from bnpbench.execution.runner import execute, run_suite

__all__ = ["Options", "Outcome", "execute", "run_suite"]
