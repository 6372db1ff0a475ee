"""What a suite can name by a kind: methods, networks, data sets, optimizers, schedules, initializations, losses and
metrics.

Every class with a kind that a module of the packages below defines is one of the built-in ones: adding one is adding a
file. Plugins are classes of the same bases from a user's file; a registry with them is a new one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from types import MappingProxyType, ModuleType
from typing import TypeGuard, TypeVar, cast

from bnpbench import datasets, initializations, losses, methods, metrics, networks, optimizers, schedules
from bnpbench.datasets.base import DatasetPlugin
from bnpbench.errors import DataError, SuiteError
from bnpbench.fields import Kinded
from bnpbench.initializations.base import InitializationPlugin
from bnpbench.losses.base import LossPlugin
from bnpbench.methods.base import MethodPlugin
from bnpbench.metrics.base import MetricPlugin
from bnpbench.networks.base import NetworkPlugin
from bnpbench.optimizers.base import OptimizerPlugin
from bnpbench.schedules.base import SchedulePlugin

Thing = TypeVar("Thing", bound=Kinded)
BASES: tuple[type[Kinded], ...] = (
    MethodPlugin,
    NetworkPlugin,
    DatasetPlugin,
    OptimizerPlugin,
    SchedulePlugin,
    InitializationPlugin,
    LossPlugin,
    MetricPlugin,
)
_PACKAGES = (methods, networks, datasets, optimizers, schedules, initializations, losses, metrics)


class Registry:
    """Kind → class, for each of :data:`BASES`; never changed.

    Args:
        classes: subclasses of the bases, each with a kind of its own.

    Raises:
        SuiteError: a class has no kind, or that of another.
    """

    def __init__(self, classes: Iterable[type[Kinded]]) -> None:
        found: dict[type[Kinded], dict[str, type[Kinded]]] = {base: {} for base in BASES}
        for cls in classes:
            base, kind = base_of(cls), cls.word()
            if kind is None:
                raise SuiteError(f'{cls.__name__} needs a kind, such as kind: Literal["{cls.__name__.lower()}"]')
            if kind in found[base]:
                raise SuiteError(f"{cls.__name__}: there is a {noun(base)} {kind!r} already; choose another kind")
            found[base][kind] = cls
        self._classes = found

    def kinds(self, base: type[Thing]) -> Mapping[str, type[Thing]]:
        """Kind → class of a base, in the order of their names; those of plugins come last."""
        return MappingProxyType(cast("dict[str, type[Thing]]", self._classes[base]))

    def dataset(self, name: str) -> type[DatasetPlugin]:
        """The data set of a name. Raises DataError."""
        known = self.kinds(DatasetPlugin)
        if name in known:
            return known[name]
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise DataError(f"there is no data set {name!r}; {hint}")

    def plus(self, classes: Iterable[type[Kinded]]) -> Registry:
        """This one, and more classes."""
        mine = [cls for kinds in self._classes.values() for cls in kinds.values()]
        return Registry([*mine, *classes])


def base_of(cls: type[Kinded]) -> type[Kinded]:
    """Which of :data:`BASES` a class comes from."""
    return next(base for base in BASES if issubclass(cls, base))


def is_base(value: object) -> TypeGuard[type[Kinded]]:
    """Whether it is one of :data:`BASES`, so that a kind says which class is meant."""
    return isinstance(value, type) and value in BASES


def noun(base: type[Kinded]) -> str:
    """What the things of a base are called: ``method``, ``network``, ``dataset``, …"""
    return base.__name__.removesuffix("Plugin").lower()


def nouns(base: type[Kinded]) -> str:
    """What several of them are called."""
    one = noun(base)
    return f"{one}es" if one.endswith("s") else f"{one}s"


@cache
def built_in() -> Registry:
    """What ships with bnpbench."""
    classes = [cls for package in _PACKAGES for cls in _classes_in(package)]
    return Registry(sorted(classes, key=lambda cls: str(cls.word())))


@cache
def baselines() -> tuple[str, ...]:
    """The kinds of methods that ratios are taken over: first that of a network as it is."""
    places = {cls.baseline: kind for kind, cls in built_in().kinds(MethodPlugin).items() if cls.baseline is not None}
    return tuple(places[place] for place in sorted(places))


@cache
def subject() -> str:
    """The kind of the method whose costs are set against the last baseline's."""
    return next(kind for kind, cls in built_in().kinds(MethodPlugin).items() if cls.subject)


def ships(cls: type[Kinded]) -> bool:
    """Whether a class is one of bnpbench and no plugin's."""
    return built_in().kinds(base_of(cls)).get(str(cls.word())) is cls


def _classes_in(package: ModuleType) -> Iterable[type[Kinded]]:
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        yield from (cls for cls in kinded(module) if cls.word() is not None)


def kinded(module: ModuleType) -> list[type[Kinded]]:
    """The subclasses of :data:`BASES` that a module defines itself."""
    return [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, BASES) and cls not in BASES and cls.__module__ == module.__name__
    ]
