"""Plugins in the process that runs them: their builders join the tables."""

from __future__ import annotations

from typing import Any

from bnpbench import datasets, methods, networks
from bnpbench.datasets.table import Dataset, Shape
from bnpbench.suite import data_shape
from bnpbench.suite.plugins import REGISTERED


def install() -> None:
    """Add an entry for every loaded plugin to the tables of methods, networks and data sets."""
    tables: dict[str, tuple[dict[str, Any], Any]] = {
        "method": (methods.METHODS, _method),
        "network": (networks.NETWORKS, _network),
        "dataset": (datasets.DATASETS, _dataset),
    }
    for (setting, kind), cls in REGISTERED.items():
        table, entry = tables[setting]
        table[kind] = entry(cls)


def _method(cls: Any) -> methods.Method:
    return methods.Method(
        layer=lambda options, features, spatial_dims, site: options.layer(features, spatial_dims, site),
        position=cls.position,
        preconditioned=cls.preconditioned,
    )


def _network(cls: Any) -> networks.Builder:
    return lambda options, normalization, input_shape, classes: options.build(normalization, input_shape, classes)


def _dataset(cls: Any) -> Dataset:
    def describe(options: Any, root: Any) -> Shape:
        known = data_shape(options)
        return Shape(known.input, known.classes, known.train, known.test)

    return Dataset(describe=describe, load=lambda options, root: options.load(), source=cls.__doc__ or cls.__name__)
