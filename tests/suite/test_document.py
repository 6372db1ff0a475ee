"""Metrics, and what the tables of a suite hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bnpbench.results import CELLS, EPOCHS, STEPS
from bnpbench.suite import document as m
from tests.support.kinds import made

IDENTITIES = {"turn", "epoch", "step", "neuron", "seed", "batch_size", "devices", "threads"}  # say where, not how much


@pytest.mark.parametrize(("schema", "metrics"), [(EPOCHS, m.EPOCHS), (CELLS, m.CELLS), (STEPS, m.STEPS)])
def test_metrics_are_the_numeric_columns(schema: pa.Schema, metrics: frozenset[str]) -> None:
    numeric = {field.name for field in schema if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)}
    assert metrics | {"energy_joules"} == numeric - IDENTITIES | {"energy_joules"}


def test_where_a_metric_comes_from() -> None:
    names = ["train_seconds", "energy_joules", "parameters", "kappa_d", "reached"]
    assert [m.table_of(name) for name in names] == ["epochs", "epochs", "cells", "steps", "targets"]
    assert m.TIMES <= m.EPOCHS


def test_the_shape_of_synthetic_data() -> None:
    shape = made("dataset", {"kind": "synthetic", "shape": (3, 4), "classes": 5, "train": 6, "test": 7}).describe()
    assert (shape.input, shape.classes, shape.train, shape.test) == ((3, 4), 5, 6, 7)
