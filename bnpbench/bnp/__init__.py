"""Batch Normalization Preconditioning: the method, and what it costs."""

from bnpbench.bnp.preconditioner import BNP

__all__ = ["BNP"]
