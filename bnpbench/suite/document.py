"""The tables of a suite file besides its settings: how to measure, what to choose, show and expect."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bnpbench.fields import Options, Positive, PositiveFloat
from bnpbench.records.rows import GAIN, METRICS, OWN_PATTERN, gains, is_own, metric, metrics, spoken

Pattern = dict[str, Any]
"""Settings that a cell must contain; matching.py has the rules."""
LONGER, LEAST = 10, 100
"""Where nothing else says when an interval gives up: so many times the epochs of its cells, and at least so many."""


def _share(value: object) -> object:
    """``"2%"`` is 0.02."""
    if not isinstance(value, str):
        return value
    if not re.fullmatch(r"\d{1,3}(\.\d{1,6})?%", value):
        raise ValueError('expected a share, such as "2%" or 0.02')
    return float(value[:-1]) / 100


Metric = Annotated[
    str, Field(json_schema_extra={"anyOf": [{"enum": sorted(METRICS)}, {"pattern": f"^{OWN_PATTERN}$"}]})
]

MAX_NAME = 64  # of a suite: a folder is called so


class Measure(Options):
    """``[measure]``: how the cells are measured.

    Attributes:
        interleave: axes of the sweep whose cells take turns in one process, epoch by epoch.
        warmup_epochs: epochs run first, undone and not written.
        interval: go on until the 95 % interval of every ratio is this narrow, as a share ("2%" is 0.02).
        max_epochs: where ``interval`` gives up; where neither is given see ``last_epoch``.
        max_seconds: where ``interval`` gives up.
    """

    interleave: tuple[str, ...] = ()
    warmup_epochs: Annotated[int, Field(ge=0)] = 0
    interval: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | None, BeforeValidator(_share, json_schema_input_type=float | str | None)
    ] = None
    max_epochs: Positive | None = None
    max_seconds: PositiveFloat | None = None

    @model_validator(mode="after")
    def _limits_need_an_interval(self) -> Self:
        if self.interval is None and (self.max_epochs is not None or self.max_seconds is not None):
            raise ValueError("max_epochs and max_seconds say where interval gives up: give interval too")
        if self.interval is not None and not self.interleave:
            raise ValueError('interval is of ratios between interleaved cells: give interleave too, as ["method"]')
        return self

    def last_epoch(self, epochs: int) -> int | None:
        """The epoch after which cells of so many ``epochs`` end at the latest; None where seconds decide."""
        if self.interval is None:
            return epochs
        if self.max_epochs is None and self.max_seconds is None:
            return max(LONGER * epochs, LEAST)
        return self.max_epochs


class Select(Options):
    """``[select]``: the best value of an axis, or of several together, for each combination of the others.

    Attributes:
        over: the axis, or the axes.
        by: what is to be highest.
        seeds: each value is tried on the first so many; the best mean is chosen.
    """

    over: str | Annotated[tuple[str, ...], Field(min_length=1)]
    by: Literal["validation_accuracy"] = "validation_accuracy"
    seeds: Positive = 1

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes."""
        return (self.over,) if isinstance(self.over, str) else self.over

    @property
    def of_methods(self) -> frozenset[str]:
        """The options of methods among them."""
        return frozenset(axis.removeprefix("method.") for axis in self.axes if axis.startswith("method."))


class Probe(Options):
    """``[probe]``: figures of one neuron in every so many iterations of the first epochs."""

    layer: Annotated[str, Field(min_length=1)]
    neuron: Annotated[int, Field(ge=0)] = 0
    every: Positive = 1
    epochs: Positive = 1


def reachable(metric: str, target: float) -> bool:
    """Whether anything could get to a target."""
    return target <= 1 or not metric.endswith("accuracy")


class Report(Options):
    """``[report]``: what the tables tell.

    Attributes:
        metric: of the end of training, that says what a method buys and that the targets are of.
        targets: values of it whose time to reach is told.
        baseline: label or kind of the method that the others are set against; by default ``vanilla``, else ``bn``.
    """

    metric: str = GAIN
    targets: tuple[PositiveFloat, ...] = ()
    baseline: str | None = None

    @field_validator("metric")
    @classmethod
    def _says_what_is_better(cls, name: str) -> str:
        if name not in gains() and not is_own(name):
            raise ValueError(f"one of {', '.join(gains())}, or a metric of the suite's own, not {name!r}")
        return name

    @field_validator("targets")
    @classmethod
    def _can_be_reached(cls, targets: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        if len(set(targets)) < len(targets):
            raise ValueError("a target is given twice")
        metric = info.data.get("metric", GAIN)
        if not reachable(metric, highest := max(targets, default=0)):
            raise ValueError(f"{metric} is a share, at most 1, not {highest:g}")
        return targets


class Override(Options):
    """``[[override]]``: other settings for the cells that match."""

    when: Pattern
    set: Annotated[Pattern, Field(min_length=1)]


# --- claims ---------------------------------------------------------------------------------


class AtEpoch(Options):
    """The value after one epoch."""

    epoch: Positive


class AtEpochs(Options):
    """The mean over epochs, first and last included."""

    epochs: tuple[Positive, Positive]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.epochs[0] > self.epochs[1]:
            raise ValueError("the first epoch comes after the last")
        return self


def _kind_of_at(value: object) -> str:
    if isinstance(value, dict):
        return "<epochs>" if "epochs" in value else "<epoch>"
    return "<epoch>" if isinstance(value, AtEpoch) else "<epochs>" if isinstance(value, AtEpochs) else "<name>"


At = Annotated[
    Annotated[Literal["last", "best", "area"], Tag("<name>")]
    | Annotated[AtEpoch, Tag("<epoch>")]
    | Annotated[AtEpochs, Tag("<epochs>")],
    Discriminator(_kind_of_at),
]


class Bounds(Options):
    """Where a value must lie."""

    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("give at_least, at_most or both")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least {self.at_least:g} is above at_most {self.at_most:g}")
        return self


class Side(BaseModel):
    """One side of a claim: settings that pick its cell, and possibly an ``at`` of its own."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)
    at: At | None = None

    @property
    def pattern(self) -> Pattern:
        """The settings that pick the cell."""
        return dict(self.__pydantic_extra__ or {})


class _Figure(Options):
    """A metric, with the target that a time to accuracy needs."""

    metric: Metric
    target: PositiveFloat | None = None
    at: At | None = None


class Reference(_Figure):
    """``[[reference]]``: a published figure to stand beside ours."""

    cell: Pattern
    value: float
    source: Annotated[str, Field(min_length=1)]


class Claim(_Figure):
    """``[[claim]]``: what the suite is expected to show.

    Attributes:
        says: the claim in words.
        left, right: what is compared; ``right`` is absent for a claim about one ``value``.
        where: holds for both sides; one verdict for each element of a list in it.
        value, difference, ratio: bounds of left, left - right, left / right; exactly one is given.
    """

    says: Annotated[str, Field(min_length=1)]
    left: Side
    right: Side | None = None
    where: Pattern = Field(default_factory=dict)
    value: Bounds | None = None
    difference: Bounds | None = None
    ratio: Bounds | None = None

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        asked = [name for name in ("value", "difference", "ratio") if getattr(self, name) is not None]
        if len(asked) != 1:
            raise ValueError(f"give exactly one of value, difference and ratio, not {' and '.join(asked) or 'none'}")
        if asked == ["value"] and self.right is not None:
            raise ValueError("value looks at left alone: leave right out, or ask for a difference or a ratio")
        if asked != ["value"] and self.right is None:
            raise ValueError(f"a {asked[0]} needs a right side")
        return self

    @property
    def question(self) -> Literal["value", "difference", "ratio"]:
        """Which of the three is bounded."""
        return "value" if self.value else "difference" if self.difference else "ratio"

    @property
    def bounds(self) -> Bounds:
        """Where the answer must lie."""
        bounds = self.value or self.difference or self.ratio
        assert bounds is not None
        return bounds

    def at_of(self, side: Literal["left", "right"]) -> Literal["all", "last", "best", "area"] | AtEpoch | AtEpochs:
        """When a side is looked at: its own ``at``, the claim's, all epochs for times, else the last."""
        own = (self.left if side == "left" else self.right or self.left).at or self.at
        return own or ("all" if metric(self.metric).timed else "last")


def figure_fault(figure: _Figure, gain: str) -> tuple[str, str] | None:
    """What is wrong between a metric, its target of ``gain`` and its ``at``: (key, message)."""
    table = metric(figure.metric).table
    needs_target = table == "targets"
    if needs_target and figure.target is None:
        return "metric", f"{figure.metric} needs a target: the {spoken(gain)} to reach"
    if not needs_target and figure.target is not None:
        return "target", f"only {', '.join(sorted(metrics('targets')))} have a target; {figure.metric} has none"
    if not reachable(gain, figure.target or 0):
        return "target", f"{gain} is a share, at most 1"
    ats = [("at", figure.at)]
    if isinstance(figure, Claim):
        ats += [(f"{name}.at", side.at) for name, side in (("left", figure.left), ("right", figure.right)) if side]
    for key, at in ats:
        if at is not None and table != "epochs":
            return key, f"at chooses among epochs, and {figure.metric} is no figure of an epoch: leave it out"
    return None


# --- the file -------------------------------------------------------------------------------


class Document(Options):
    """A suite file. ``train`` and ``sweep`` hold settings; expansion.py validates them."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=MAX_NAME)]
    source: str = ""
    description: str = ""
    plugins: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    reads: tuple[Annotated[str, Field(min_length=1)], ...] = ()  # files that the plugins read; hashed with them
    train: dict[str, Any] = Field(default_factory=dict)
    sweep: dict[str, Any] = Field(default_factory=dict)
    override: tuple[Override, ...] = ()
    measure: Measure = Measure()
    select: Select | None = None
    probe: Probe | None = None
    report: Report = Report()
    reference: tuple[Reference, ...] = ()
    claim: tuple[Claim, ...] = ()
