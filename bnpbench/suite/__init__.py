"""Suites: settings, loading with located errors, expansion to cells and blocks, keys. No torch."""

from __future__ import annotations

from bnpbench.suite.cells import Block, Cell
from bnpbench.suite.check import misfit, unchecked
from bnpbench.suite.differences import differing, heading, setting, telling, told
from bnpbench.suite.document import (
    Measure,
    Probe,
)
from bnpbench.suite.loading import check_name, load_suite, shipped_suites
from bnpbench.suite.plugins import PluginFile, load_plugins
from bnpbench.suite.schema import json_schema
from bnpbench.suite.settings import Settings, training_of
from bnpbench.suite.suite import Suite

__all__ = [
    "Block",
    "Cell",
    "Measure",
    "PluginFile",
    "Probe",
    "Settings",
    "Suite",
    "check_name",
    "differing",
    "heading",
    "json_schema",
    "load_plugins",
    "load_suite",
    "misfit",
    "setting",
    "shipped_suites",
    "telling",
    "told",
    "training_of",
    "unchecked",
]
