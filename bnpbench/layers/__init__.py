"""Normalizations that torch lacks, and where a network puts them."""

from __future__ import annotations

from bnpbench.layers.averaged import AveragedBatchNorm
from bnpbench.layers.four_things import FourThings
from bnpbench.layers.normalization import Maker, Normalization
from bnpbench.layers.renorm import BatchRenorm
from bnpbench.layers.synchronized import SynchronizedBatchNorm

__all__ = ["AveragedBatchNorm", "BatchRenorm", "FourThings", "Maker", "Normalization", "SynchronizedBatchNorm"]
