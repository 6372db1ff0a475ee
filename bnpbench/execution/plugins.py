"""Plugins in the process that runs them: their builders join the tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from bnpbench import datasets, methods, networks
from bnpbench.datasets.table import Dataset, Shape
from bnpbench.errors import SuiteError
from bnpbench.layers import Normalization
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
    def build(options: Any, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        sites = set[str]()

        def once(features: int, spatial_dims: int, site: str) -> nn.Module:
            if site in sites:
                raise SuiteError(
                    f"{cls.__name__}.build: the normalization of {site!r} was asked for twice: once for each place, at "
                    "normalization.position, by a name of its own"
                )
            sites.add(site)
            return normalization.make(features, spatial_dims, site)

        model: nn.Module = options.build(replace(normalization, maker=once), input_shape, classes)
        return model

    return build


def _dataset(cls: Any) -> Dataset:
    def describe(options: Any, root: Any) -> Shape:
        known = data_shape(options)
        return Shape(known.input, known.classes, known.train, known.test)

    return Dataset(describe=describe, load=lambda options, root: options.load(), source=cls.__doc__ or cls.__name__)
