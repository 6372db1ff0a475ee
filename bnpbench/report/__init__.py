"""What the results say: tables, verdicts on claims, comparisons of two runs. No torch."""

from __future__ import annotations

from bnpbench.report.claims import Verdict, claims_exit_code, verdicts
from bnpbench.report.comparison import compare
from bnpbench.report.outcome import Comparison
from bnpbench.report.rendering import render

__all__ = ["Comparison", "Verdict", "claims_exit_code", "compare", "render", "verdicts"]
