"""The paper's figures, and claims as a forest plot, from what was measured. No torch."""

from __future__ import annotations

from bnpbench.report.figures.gather import figures
from bnpbench.report.figures.model import Curve, Figure, ForestPanel, Panel
from bnpbench.report.figures.palette import Ink, inks
from bnpbench.report.figures.writing import write_figures

__all__ = ["Curve", "Figure", "ForestPanel", "Ink", "Panel", "figures", "inks", "write_figures"]
