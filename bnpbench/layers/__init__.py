"""Normalizations that torch lacks, and the layers that have weights."""

from __future__ import annotations

from bnpbench.layers.averaged import AveragedBatchNorm
from bnpbench.layers.four_things import FourThings
from bnpbench.layers.renorm import BatchRenorm
from bnpbench.layers.rms import RmsNorm
from bnpbench.layers.standardized import Standardized
from bnpbench.layers.synchronized import SynchronizedBatchNorm
from bnpbench.layers.tanh import DynamicTanh
from bnpbench.layers.weighted import weighted

__all__ = [
    "AveragedBatchNorm",
    "BatchRenorm",
    "DynamicTanh",
    "FourThings",
    "RmsNorm",
    "Standardized",
    "SynchronizedBatchNorm",
    "weighted",
]
