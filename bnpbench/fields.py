"""What tables of settings are made of: their base class, the number types, and things known by their ``kind``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

if TYPE_CHECKING:
    from torch import Tensor


class Options(BaseModel):
    """Base of every table of a suite: unknown keys are errors, values are never coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


AUTOCAST = frozenset({"bf16", "fp16"})
"""Precisions in which forward passes and the loss run under autocast."""

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]


class Keywords(dict[str, Any]):
    """Arguments by name, as a suite writes them for a function that nothing is known of; hashable, never changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted((name, repr(value)) for name, value in self.items())))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        table = core_schema.dict_schema(core_schema.str_schema(strict=True), core_schema.any_schema())
        return core_schema.no_info_after_validator_function(cls, table)


class Kinded(Options):
    """Base of what a suite names by its kind: the fields are its options, and the methods say what it does.

    A class becomes one by a field ``kind: Literal["name"]``. Whatever needs torch imports it inside the method that
    needs it: options are read before torch is.
    """

    kind: str

    @classmethod
    def word(cls) -> str | None:
        """The kind that a suite writes; None for a base class."""
        return next(iter(get_args(stripped(hints(cls)["kind"]))), None)

    @classmethod
    def made(cls, **options: object) -> Self:
        """One of this kind, with these options and the defaults of the others."""
        return cls.model_validate({"kind": cls.word(), **options})


def named(thing: Kinded) -> str:
    """How an error calls the class of a thing, with the file that it stands in: ``entropy.py: Entropy``."""
    cls = type(thing)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return f"{Path(file).name}: {cls.__name__}" if file else cls.__name__


def one_of_each(thing: Kinded, found: Tensor, labels: Tensor) -> Tensor:
    """What a thing's ``of_each()`` has found, of the shape of ``labels``.

    Raises:
        ValueError: it is not one value a label.
    """
    if getattr(found, "shape", None) != labels.shape:
        told = tuple(found.shape) if hasattr(found, "shape") else repr(found)
        raise ValueError(f"{named(thing)}.of_each gives {told}, not one value a label, {tuple(labels.shape)}")
    return found


@contextmanager
def unwritten(thing: Kinded, **given: Tensor) -> Iterator[None]:
    """Hold that a thing only reads what it is given of a batch, because others are given the same after it.

    Raises:
        ValueError: it has written to one of the tensors.
    """
    versions = {name: tensor._version for name, tensor in given.items()}
    yield
    for name, tensor in given.items():
        if tensor._version != versions[name]:
            raise ValueError(f"{named(thing)} writes to {name}, which others read after it; write to {name}.clone()")


@cache
def hints(model: type[BaseModel]) -> dict[str, Any]:
    """Option name → type, with its annotations, in the order of declaration."""
    annotations = get_type_hints(model, include_extras=True)
    return {name: annotations[name] for name in model.model_fields}


def stripped(hint: object) -> object:
    """The type without its annotations."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def default_of(model: type[BaseModel], name: str) -> object:
    """The default of a field; None where it has none."""
    field = model.model_fields[name]
    return None if field.is_required() else field.get_default()


Position = Literal["post", "pre"]
"""Where a normalization stands: behind the activation (``post``) or between a layer and its activation (``pre``)."""

Sites = Literal["none", "keep"]
"""What stands where the author of a network of others normalizes: nothing, or what its author put there."""

Over = Literal["none", "channel", "pixel"]
"""Over what a mean is taken: nothing, each channel's values, each single value's (He et al. 2015)."""
