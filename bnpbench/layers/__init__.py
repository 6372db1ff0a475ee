"""Normalizations that torch lacks, those of others' networks, and the layers that have weights."""

from __future__ import annotations

from bnpbench.layers.averaged import AveragedBatchNorm
from bnpbench.layers.filter_response import FilterResponseNorm, threshold
from bnpbench.layers.four_things import FourThings
from bnpbench.layers.probing import Calls, calls_of, on_meta
from bnpbench.layers.renorm import BatchRenorm
from bnpbench.layers.rms import RmsNorm
from bnpbench.layers.standardized import ScaledStandardized, Standardized
from bnpbench.layers.swap import Place, normalizes, places, swapped
from bnpbench.layers.synchronized import SynchronizedBatchNorm
from bnpbench.layers.tanh import DynamicTanh
from bnpbench.layers.weighted import WEIGHTED, weighted

__all__ = [
    "WEIGHTED",
    "AveragedBatchNorm",
    "BatchRenorm",
    "Calls",
    "DynamicTanh",
    "FilterResponseNorm",
    "FourThings",
    "Place",
    "RmsNorm",
    "ScaledStandardized",
    "Standardized",
    "SynchronizedBatchNorm",
    "calls_of",
    "normalizes",
    "on_meta",
    "places",
    "swapped",
    "threshold",
    "weighted",
]
