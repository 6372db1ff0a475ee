"""Suites: settings, loading with located errors, expansion to cells and blocks, keys. No torch."""

from __future__ import annotations

from bnpbench.suite.cells import Block, Cell
from bnpbench.suite.check import misfit, unchecked
from bnpbench.suite.document import (
    METRICS,
    AtEpoch,
    AtEpochs,
    Bounds,
    Claim,
    Measure,
    Probe,
    Reference,
    Select,
    Side,
    table_of,
)
from bnpbench.suite.loading import check_name, load_suite, shipped_suites
from bnpbench.suite.plugins import PluginFile, load_plugins
from bnpbench.suite.schema import json_schema
from bnpbench.suite.settings import SCHEMA_VERSION, Settings, training_of
from bnpbench.suite.suite import Suite

__all__ = [
    "METRICS",
    "SCHEMA_VERSION",
    "AtEpoch",
    "AtEpochs",
    "Block",
    "Bounds",
    "Cell",
    "Claim",
    "Measure",
    "PluginFile",
    "Probe",
    "Reference",
    "Select",
    "Settings",
    "Side",
    "Suite",
    "check_name",
    "json_schema",
    "load_plugins",
    "load_suite",
    "misfit",
    "shipped_suites",
    "table_of",
    "training_of",
    "unchecked",
]
