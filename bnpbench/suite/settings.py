"""The settings of a cell, and what may stand where in a table of them.

A default, here or in the options of a method, network, ..., never changes without a step of ``SCHEMA_VERSION``, because
a cell's key hashes only what differs from the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, SerializeAsAny, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from bnpbench.datasets.base import DatasetPlugin, shape_of
from bnpbench.fields import Fraction, Kinded, NonNegativeFloat, Options, Positive, PositiveFloat, hints, stripped
from bnpbench.initializations.base import InitializationPlugin
from bnpbench.initializations.glorot import Glorot
from bnpbench.losses.base import LossPlugin
from bnpbench.losses.cross_entropy import CrossEntropy
from bnpbench.methods.base import MethodPlugin
from bnpbench.methods.preconditioning import Training
from bnpbench.metrics.base import MetricPlugin
from bnpbench.networks.base import NetworkPlugin
from bnpbench.optimizers.base import OptimizerPlugin
from bnpbench.reading.parts import split_sizes
from bnpbench.registry import built_in, is_base
from bnpbench.schedules.base import SchedulePlugin
from bnpbench.schedules.constant import Constant

SCHEMA_VERSION = 1


class ByKind:
    """Marks a setting whose class is looked up by its kind, in the registry that validation is given as its context.

    It takes an instance, a table with a ``kind``, or the kind alone: ``"bnp"`` is short for ``{ kind = "bnp" }``.
    """

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        base = stripped(source)
        assert is_base(base)

        def look_up(value: object, info: ValidationInfo) -> Kinded:
            if isinstance(value, base):
                return value
            known = (info.context or built_in()).kinds(base)
            table = {"kind": value} if isinstance(value, str) else value
            if not isinstance(table, dict):
                raise PydanticCustomError("table_or_kind", "a table or a kind", {"kinds": list(known)})
            kind = table.get("kind")
            if "kind" not in table:
                raise PydanticCustomError("kind_missing", "needs a kind", {"kinds": list(known)})
            if not isinstance(kind, str) or kind not in known:
                raise PydanticCustomError("kind_unknown", "unknown kind", {"kinds": list(known), "given": kind})
            made: Kinded = known[kind].model_validate(table, context=info.context)
            return made

        return core_schema.with_info_plain_validator_function(look_up)


def _value_or_table(value: object) -> object:
    """``1e-4`` is short for ``{ value = 1e-4 }``."""
    return {"value": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


class WeightDecay(Options):
    """``value`` times the weights: added by the optimizer after preconditioning, or as ``l2`` in the loss before it."""

    value: NonNegativeFloat = 0.0
    where: Literal["optimizer", "l2"] = "optimizer"


@dataclass(frozen=True)
class Fact:
    """What is true of a setting, whatever its value. Stands on its field; every list of settings is made from these.

    Attributes:
        checked: faults between settings depend on it.
        fits: whether a method has a meaning depends on it.
        shared: the cells of a block agree in it: one process, one set of flags, as many turns.
        data: which examples lie on a device, and how, depends on it.
        free: what stands for it where only the costs of a step are asked for, which do not depend on it.
        auto: what "auto" may become when the machine is known; empty: any number. None where it may not be "auto".
        repeats: cells that differ in it alone do the same, as another draw, for longer, or beside others.
        axis: a table has rows, columns or repetitions for its values, and no heading.
        place: a method and the one that it is held against are alike in it, as in those of ``run``.
        run: it says how a cell is run, and a cost may depend on it.
        heading: how much a reader expects it in a heading, where few settings suffice to tell cells apart.
    """

    checked: bool = False
    fits: bool = False
    shared: bool = False
    data: bool = False
    free: Any = ...
    auto: tuple[str, ...] | None = None
    repeats: bool = False
    axis: bool = False
    place: bool = False
    run: bool = False
    heading: int = 0


class Settings(Options):
    """Everything that decides a cell's numbers on a given machine."""

    dataset: Annotated[
        SerializeAsAny[DatasetPlugin], ByKind(), Fact(checked=True, fits=True, data=True, place=True, heading=8)
    ]
    network: Annotated[
        SerializeAsAny[NetworkPlugin], ByKind(), Fact(checked=True, fits=True, data=True, place=True, heading=7)
    ]
    method: Annotated[SerializeAsAny[MethodPlugin], ByKind(), Fact(checked=True, fits=True, axis=True)]
    optimizer: Annotated[SerializeAsAny[OptimizerPlugin], ByKind(), Fact(fits=True)]
    batch_size: Annotated[Positive, Fact(checked=True, fits=True, axis=True, place=True)]
    epochs: Annotated[Positive, Fact(shared=True, free=1, repeats=True)]
    seed: Annotated[int, Field(ge=0, lt=2**31), Fact(free=1, repeats=True, axis=True, place=True)] = 1
    device: Annotated[
        Literal["auto", "cpu", "cuda"], Fact(shared=True, free="cpu", auto=("cpu", "cuda"), run=True, heading=3)
    ] = "auto"
    devices: Annotated[Positive, Fact(checked=True, fits=True, shared=True, heading=2)] = 1  # that share every batch
    engine: Annotated[
        Literal["auto", "eager", "compiled", "graphed"],
        Fact(checked=True, fits=True, auto=("eager", "graphed"), run=True, heading=6),
    ] = "auto"
    threads: Annotated[
        Literal["auto"] | Positive, Fact(shared=True, free=1, auto=(), repeats=True, run=True, heading=1)
    ] = "auto"
    precision: Annotated[Literal["float32", "tf32", "bf16", "fp16"], Fact(shared=True, run=True, heading=5)] = "float32"
    memory_format: Annotated[
        Literal["contiguous", "channels_last"], Fact(checked=True, data=True, free="contiguous", run=True, heading=4)
    ] = "contiguous"
    deterministic: Annotated[bool, Fact(shared=True)] = False
    schedule: Annotated[SerializeAsAny[SchedulePlugin], ByKind()] = Constant.made()
    initialization: Annotated[SerializeAsAny[InitializationPlugin], ByKind()] = Glorot.made()
    weight_decay: Annotated[WeightDecay, BeforeValidator(_value_or_table)] = WeightDecay()
    clip_norm: PositiveFloat | None = None  # of all gradients together, after the method changed them
    clip_adaptive: PositiveFloat | None = None  # of each unit's gradient, as a share of its weights; before clip_norm
    loss: Annotated[SerializeAsAny[LossPlugin], ByKind(), Fact(checked=True)] = CrossEntropy.made()
    metrics: Annotated[
        tuple[Annotated[SerializeAsAny[MetricPlugin], ByKind()], ...], Fact(checked=True, free=())
    ] = ()  # of the test set, beside loss and accuracy
    label_smoothing: Annotated[Fraction, Fact(checked=True)] = 0.0
    accumulate: Annotated[Positive, Fact(checked=True, fits=True)] = 1  # micro-batches of a batch
    augment: Annotated[Literal["none", "crop-flip"], Fact(checked=True, data=True)] = "none"
    train_limit: Annotated[Positive | None, Fact(checked=True, data=True, free=None)] = None
    validation: Annotated[Fraction, Fact(checked=True, data=True, free=0.0)] = 0.0
    plugins: tuple[str, ...] = ()  # SHA-256 of the suite's plugins, sorted; never written by hand

    def only(self, fact: str) -> tuple[Any, ...]:
        """The values of the settings of which a fact is true, in the order of the settings."""
        return tuple(getattr(self, name) for name in having(fact))

    def costing(self) -> Settings:
        """These settings with a fixed value for each that no step's costs depend on."""
        return self.model_copy(update={name: fact.free for name, fact in FACTS.items() if fact.free is not ...})

    @property
    def pooled_examples(self) -> int:
        """Examples that share the statistics of a layer: a micro-batch, or the smallest share of a device of it."""
        return self.batch_size // self.accumulate // (self.devices if self._apart else 1)

    @property
    def divided(self) -> str:
        """By which settings a batch is more than these, behind the name of a layer; empty where it is not."""
        names = [*(["accumulate"] if self.accumulate > 1 else []), *(["devices"] if self._apart else [])]
        told = " and ".join(f"{name} = {getattr(self, name)}" for name in names)
        return f" ({told} {'divides' if len(names) == 1 else 'divide'} a batch of {self.batch_size})" if names else ""

    @property
    def _apart(self) -> bool:
        """Whether each of several devices has statistics of its own."""
        return self.devices > 1 and not self.method.shares_statistics

    @property
    def l2(self) -> float:
        """What of the weight decay stands in the loss."""
        return self.weight_decay.value if self.weight_decay.where == "l2" else 0.0

    def split_sizes(self) -> tuple[int, int]:
        """Numbers of examples to train on and to validate on (:func:`bnpbench.reading.parts.split_sizes`)."""
        return split_sizes(shape_of(self.dataset).train, self.train_limit, self.validation)


SETTINGS: dict[str, Any] = {name: hint for name, hint in hints(Settings).items() if name != "plugins"}
"""The settings that a suite may name, with their types; plugins are hashed, not written."""


FACTS = {
    name: next((note for note in get_args(hint) if isinstance(note, Fact)), Fact()) for name, hint in SETTINGS.items()
}
"""What is true of each setting."""


@cache
def having(fact: str) -> tuple[str, ...]:
    """The names of the settings of which a fact is true."""
    return tuple(name for name, known in FACTS.items() if getattr(known, fact) not in (False, None))


def training_of(settings: Settings, *, penalized: bool = False) -> Training:
    """What a method may know of a cell's training.

    Args:
        settings: of the cell.
        penalized: whether the loss has a penalty.
    """
    s, entropy = settings, settings.loss.entropy
    return Training(s.batch_size, s.devices, s.precision, s.engine, penalized, s.device, s.accumulate, entropy=entropy)
