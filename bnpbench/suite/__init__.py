"""Suites: the vocabulary, loading with located errors, expansion to cells and blocks, keys. No torch."""

from bnpbench.suite.cells import Block, Cell
from bnpbench.suite.data import DATASETS, DataShape, data_shape, split_sizes
from bnpbench.suite.document import AtEpoch, AtEpochs, Bounds, Claim, Measure, Probe, Reference, Select, Side
from bnpbench.suite.loading import load_suite, shipped_suites
from bnpbench.suite.schema import json_schema
from bnpbench.suite.suites import Suite
from bnpbench.suite.vocabulary import SCHEMA_VERSION, Settings

__all__ = [
    "DATASETS",
    "SCHEMA_VERSION",
    "AtEpoch",
    "AtEpochs",
    "Block",
    "Bounds",
    "Cell",
    "Claim",
    "DataShape",
    "Measure",
    "Probe",
    "Reference",
    "Select",
    "Settings",
    "Side",
    "Suite",
    "data_shape",
    "json_schema",
    "load_suite",
    "shipped_suites",
    "split_sizes",
]
