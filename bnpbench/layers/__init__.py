"""Normalizations that torch lacks, and where a network puts them."""

from __future__ import annotations

from bnpbench.layers.averaged import AveragedBatchNorm
from bnpbench.layers.normalization import Maker, Normalization

__all__ = ["AveragedBatchNorm", "Maker", "Normalization"]
