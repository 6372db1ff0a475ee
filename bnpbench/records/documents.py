"""``suite.json`` and ``environment.json`` as records, written and read.

They are read as columns are: what another version wrote beside ours is left out and named, what it did not write is at
its default. Files may be a stranger's. A field that only says more is at its default too where it is none of ours; a
document without one that it is nothing without is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from bnpbench.records.rows import GAIN, gains, is_own

JSON = Any
"""Whatever a file holds, of which nothing is known."""
R = TypeVar("R", bound="Record")


def _else(default: Callable[[], object]) -> WrapValidator:
    """What stands for a value of another type."""

    def validate(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError:
            return default()

    return WrapValidator(validate)


def _gain(name: str) -> str:
    if name not in gains() and not is_own(name):
        raise ValueError("no metric that says what a method buys")
    return name


OrNone = _else(lambda: None)
Text = Annotated[str | None, OrNone]
Number = Annotated[int | float | None, OrNone]


class Record(BaseModel):
    """Base of all of these. Values are never coerced; names that are not known are left out.

    Attributes:
        place: where it stands, as the names of what is left out begin.
    """

    model_config = ConfigDict(frozen=True, strict=True, defer_build=True)
    place: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _name_what_is_left_out(cls, data: object, info: ValidationInfo) -> object:
        if isinstance(data, dict) and info.context is not None:
            info.context.update(f"{cls.place}.{name}" for name in data.keys() - cls.model_fields)
        return data

    @classmethod
    def read(cls, data: object, unknown: set[str]) -> Self:
        """A document as a record; what is left out of it goes to ``unknown``. Raises pydantic's ValidationError."""
        return cls.model_validate(data, context=unknown)

    def document(self) -> dict[str, Any]:
        """JSON data of what was told, in the order of the fields."""
        return self.model_dump(exclude_unset=True)


# --- environment.json --------------------------------------------------------------------------------------------


class Hardware(Record):
    """The machine, as far as a number depends on it."""

    place = "environment.hardware"
    cpu: Text = None
    cores: Annotated[int, _else(lambda: 1)] = 1
    gpu: Text = None
    gpus: Annotated[int, _else(int)] = 0


class Software(Record):
    """Versions of what ran."""

    place = "environment.software"
    torch: Text = None
    torchvision: Text = None
    cuda: Text = None
    cudnn: Number = None
    driver: Text = None
    python: Text = None
    blas: Text = None


class GpuDetails(Record):
    """A CUDA device; None for what nobody tells.

    Attributes:
        capability: of its multiprocessors, such as 9.0.
        hip: version of AMD's runtime, where that is what torch calls CUDA.
        power_limit_watts, most_clock_mhz, set_clock_mhz: the power limit, the highest clock, and the one that
            applications were set to.
        persistence: whether the driver stays loaded between processes.
        mig: whether it is a slice of a GPU.
        untold: why questions had no answer, by what was asked.
    """

    place = "environment.details.gpu"
    memory_bytes: Number = None
    capability: Text = None
    hip: Text = None
    power_limit_watts: Number = None
    most_clock_mhz: Number = None
    set_clock_mhz: Number = None
    persistence: Annotated[bool | None, OrNone] = None
    mig: Annotated[bool | None, OrNone] = None
    untold: Annotated[dict[str, str], _else(dict)] = {}

    def hints(self) -> list[str]:
        """What could be set for steadier numbers, and what is not known of the device."""
        found = []
        if self.persistence is False:
            found.append(
                "persistence mode of the GPU is off: its driver may be loaded anew for every process (nvidia-smi -pm 1)"
            )
        if self.set_clock_mhz is None or self.set_clock_mhz == self.most_clock_mhz:
            found.append(
                "the GPU's clock is not known to be held: it follows load and heat, and times with it (nvidia-smi -lgc)"
            )
        if self.mig:
            found.append("the GPU is a slice of one (MIG): clocks are those of the whole, energy is not told")
        return [*found, *(f"not told of the GPU: {what} ({why})" for what, why in self.untold.items())]


class Details(Record):
    """What is good to know of the machine beside a number.

    Attributes:
        variables: of the process's environment, that change what a GPU does.
        gpu: the CUDA device that is used.
        cuda_unusable: why torch cannot work with the driver that is there.
    """

    place = "environment.details"
    system: Text = None
    memory_bytes: Number = None
    affinity: Annotated[list[int] | None, OrNone] = None
    logical_cores: Number = None
    governor: Text = None
    instructions: Text = None
    mkldnn: Annotated[bool | None, OrNone] = None
    malloc: Annotated[dict[str, str | None] | None, OrNone] = None
    variables: Annotated[dict[str, str], _else(dict)] = {}
    gpu: Annotated[GpuDetails | None, OrNone] = None
    cuda_unusable: Text = None


_UNITS = {"bandwidth": (1e9, "GB/s"), "operators": (1e3, "thousand a second"), "recorded": (1e3, "thousand a second")}


class Rate(Record):
    """A rate a second.

    Attributes:
        device: cpu or cuda.
        threads: of torch, where they matter; None on CUDA.
        quantity: ``bandwidth`` (bytes, of a = b + s c: two arrays read, one written), ``float32``, ``tf32``, ``bf16``
            (operations of a product of square matrices, a multiply-add being two), ``core`` (those of float32 by the
            fastest of several kernels), ``operators`` (additions to a single number, one after the other), or
            ``recorded`` (the same from a CUDA graph).
        median, low, high: over the repetitions.
        repetitions: how many.
        kernel: the fastest, of ``core``.
    """

    place = "environment.rates.rates"
    device: str
    threads: int | None
    quantity: str
    median: float
    low: float
    high: float
    repetitions: int
    kernel: Text = None

    @property
    def shown(self) -> tuple[str, str, str]:
        """Its median with its unit, and low and high in the same."""
        scale, unit = _UNITS.get(self.quantity, (1e9, "GFLOP/s"))
        middle, low, high = (f"{number / scale:,.1f}" for number in (self.median, self.low, self.high))
        return f"{middle} {unit}", low, high


class Rates(Record):
    """What a machine can do at most.

    Attributes:
        measured: the day.
        libraries: what multiplies matrices on the CPU.
        rates: None for one that cannot be read.
    """

    place = "environment.rates"
    measured: Text = None
    libraries: Annotated[list[str], _else(list)] = []
    rates: Annotated[list[Annotated[Rate | None, OrNone]], _else(list)] = []


class Environment(Record):
    """``environment.json``: what else than a suite can change a number.

    Attributes:
        id: 12 hex digits over hardware, driver, torch, CUDA and ``MEASUREMENT``.
        measurement: see ``measure.measurement``.
        details, rates: do not count for the id; the rates are None where they were never measured.
    """

    place = "environment"
    id: str
    hardware: Annotated[Hardware, _else(Hardware)] = Hardware()
    software: Annotated[Software, _else(Software)] = Software()
    measurement: JSON = None
    details: Annotated[Details, _else(Details)] = Details()
    rates: Annotated[Rates | None, OrNone] = None


# --- suite.json --------------------------------------------------------------------------------------------------


class MeasureRecord(Record):
    """How the cells were measured, see ``suite.document.Measure``."""

    place = "suite.measure"
    interleave: Annotated[list[str], FailFast(), _else(list)] = []
    warmup_epochs: Number = None
    interval: Number = None
    max_epochs: Number = None
    max_seconds: Number = None


class ReferenceRecord(Record):
    """A published figure.

    Attributes:
        cell: the pattern that picked its cells.
        cells: their keys.
    """

    place = "suite.references"
    metric: Text = None
    target: Number = None
    at: JSON = None
    cell: JSON = None
    value: Number = None
    source: Text = None
    cells: Annotated[list[str], FailFast()]


def _a_number(value: float) -> float:
    if value != value:
        raise ValueError("a bound is not a number")
    return value


Bound = Annotated[int | float, AfterValidator(_a_number)] | None


class BoundsRecord(Record):
    """Where a claim's answer must lie."""

    place = "suite.claims.bounds"
    at_least: Bound = None
    at_most: Bound = None


class SideRecord(Record):
    """One side of a claim."""

    place = "suite.claims.side"
    pattern: dict[str, JSON] = {}
    at: JSON = None


def _all_text(table: dict[str, JSON]) -> dict[str, JSON]:
    if not all(isinstance(value, str) for value in table.values()):
        raise ValueError("a key is not a text")
    return table


Keys = Annotated[dict[str, JSON], AfterValidator(_all_text)]
"""Seed → key."""


class CombinationRecord(Record):
    """One verdict of a claim: the cells of both sides."""

    place = "suite.claims.combinations"
    where: dict[str, JSON] | None = None
    left: Keys
    right: Keys | None = None


class ClaimRecord(Record):
    """What a suite is expected to show, and the cells that decide it."""

    place = "suite.claims"
    says: str
    metric: str
    target: int | float | None = None
    question: Literal["value", "difference", "ratio"]
    bounds: BoundsRecord
    left: SideRecord
    right: SideRecord | None = None
    where: dict[str, JSON] | None = None
    combinations: Annotated[list[CombinationRecord], FailFast()]

    @model_validator(mode="after")
    def _one_side_or_two(self) -> Self:
        rights = [self.right, *(combination.right for combination in self.combinations)]
        if any((right is None) != (self.question == "value") for right in rights):
            raise ValueError("a value has one side, a difference or a ratio two")
        return self


Claimed = Annotated[ClaimRecord | dict[str, JSON], Field(union_mode="left_to_right")]


class SelectRecord(Record):
    """The axis whose best value is chosen, or the axes, and by which metric."""

    place = "suite.select"
    over: str | Annotated[list[str], Field(min_length=1)]
    by: str
    seeds: Number = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes."""
        return (self.over,) if isinstance(self.over, str) else tuple(self.over)


class ShortenedRecord(Record):
    """What a run changed of the suite."""

    place = "suite.shortened"
    epochs: Number = None


class CellRecord(Record):
    """A cell of the suite, measured or not.

    Attributes:
        settings: every one, but for the method's label.
        epochs: in the suite, where the run took another number of them.
    """

    place = "suite.cells"
    key: str
    label: Text = None
    block: Text = None
    role: Text = None
    settings: dict[str, JSON]
    epochs: Number = None


class SuiteRecord(Record):
    """``suite.json``: the resolved suite.

    Attributes:
        claims: a dictionary for one that this version cannot read.
        metric: of the end of training, that says what a method buys and that the targets are of.
        changes: settings that a run gave every cell (``--set``).
        inks: how methods of its plugins are drawn, by kind.
    """

    place = "suite"
    schema_version: Annotated[int | None, OrNone] = None
    name: str
    source: Text = None
    description: Text = None
    bnpbench: Text = None
    measure: Annotated[MeasureRecord, BeforeValidator(lambda table: table or {})] = MeasureRecord()
    baseline: Text = None
    metric: Annotated[str, AfterValidator(_gain), _else(lambda: GAIN)] = GAIN
    targets: Annotated[list[int | float], FailFast()] = []
    references: Annotated[list[ReferenceRecord], FailFast()] = []
    claims: Annotated[list[Claimed], FailFast()] = []
    select: Annotated[SelectRecord | None, OrNone] = None
    probe: Annotated[dict[str, JSON] | None, OrNone] = None
    shortened: ShortenedRecord | None = None
    changes: Annotated[list[str], _else(list)] = []
    inks: Annotated[dict[str, JSON] | None, OrNone] = None
    cells: Annotated[list[CellRecord], FailFast()] = []

    def of_cells(self, keys: Collection[str]) -> Self:
        """With these cells alone, and the claims and references that rest on them."""
        claims = [
            claim.model_copy(update={"combinations": whole})
            for claim in self.claims
            if isinstance(claim, ClaimRecord)
            and (
                whole := [
                    one for one in claim.combinations if {*one.left.values(), *(one.right or {}).values()} <= {*keys}
                ]
            )
        ]
        references = [
            reference.model_copy(update={"cells": there})
            for reference in self.references
            if (there := [key for key in reference.cells if key in keys])
        ]
        cells = [cell for cell in self.cells if cell.key in keys]
        return self.model_copy(update={"cells": cells, "claims": claims, "references": references})

    @model_validator(mode="after")
    def _has_a_name(self) -> Self:
        if not self.name or self.name != self.name.encode(errors="replace").decode():
            raise ValueError("a suite without a name")
        return self
