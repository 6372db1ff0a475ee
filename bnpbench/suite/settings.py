"""The settings of a cell: one of the vocabulary's words for each, and what holds where none is given.

A default, here or in the vocabulary, never changes without a step of ``SCHEMA_VERSION``, because a cell's key hashes
only what differs from the defaults.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bnpbench.suite.vocabulary import (
    Constant,
    DatasetOptions,
    Fraction,
    Glorot,
    InitializationOptions,
    MethodOptions,
    NetworkOptions,
    OptimizerOptions,
    Options,
    Positive,
    ScheduleOptions,
    WeightDecay,
)

SCHEMA_VERSION = 1


def _value_or_table(value: Any) -> Any:
    """``1e-4`` is short for ``{ value = 1e-4 }``."""
    return {"value": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


class Settings(Options):
    """Everything that decides a cell's numbers on a given machine."""

    dataset: DatasetOptions
    network: NetworkOptions
    method: MethodOptions
    optimizer: OptimizerOptions
    batch_size: Positive
    epochs: Positive
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    devices: Positive = 1  # that share every batch
    engine: Literal["auto", "eager", "compiled", "graphed"] = "auto"
    threads: Literal["auto"] | Positive = "auto"
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    memory_format: Literal["contiguous", "channels_last"] = "contiguous"
    deterministic: bool = False
    schedule: ScheduleOptions = Constant(kind="constant")
    initialization: InitializationOptions = Glorot(kind="glorot")
    weight_decay: Annotated[WeightDecay, BeforeValidator(_value_or_table)] = WeightDecay()
    augment: Literal["none", "crop-flip"] = "none"
    train_limit: Positive | None = None
    validation: Fraction = 0.0
    plugins: tuple[str, ...] = ()  # SHA-256 of the suite's plugins, sorted; never written by hand
