"""What the results say: tables, verdicts on claims, comparisons of two runs. No torch."""

from __future__ import annotations

from bnpbench.report.compare import compare
from bnpbench.report.comparison import Comparison
from bnpbench.report.render import render
from bnpbench.report.verdicts import Verdict, claims_exit_code, verdicts

__all__ = ["Comparison", "Verdict", "claims_exit_code", "compare", "render", "verdicts"]
