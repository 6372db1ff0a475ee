"""Cells, their keys, and the blocks that they are measured in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from bnpbench.errors import Origin, SuiteError
from bnpbench.suite.document import Measure, Probe
from bnpbench.suite.settings import Settings
from bnpbench.suite.vocabulary import frozen, label
from bnpbench.text import short_hash

Role = Literal["final", "trial"]


@dataclass(frozen=True)
class Cell:
    """One fully resolved setting.

    Attributes:
        settings: every setting, nothing left at "auto".
        role: ``final``, or ``trial`` where it only serves to choose a setting.
        group: where it stands on the axes that are not interleaved; cells of one group share a block.
        whole: epochs in the suite, where a run takes another number of them.
        origins: where the suite has the settings that only building can judge, by their dotted names.
    """

    settings: Settings
    role: Role = "final"
    group: str = field(default="", compare=False, repr=False)
    whole: int | None = field(default=None, compare=False, repr=False)
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False, repr=False)

    def placed(self, error: SuiteError) -> SuiteError:
        """An error in one of its settings, at the place where the suite has that, if it is known."""
        origin = self.origins.get(error.key or "")
        return error if origin is None else error.at(origin)

    @property
    def shorter(self) -> bool:
        """Whether it ends before the suite's end."""
        return self.whole is not None and self.settings.epochs < self.whole

    @cached_property
    def canonical(self) -> str:
        """The settings that differ from their default as JSON: sorted keys, no spaces, no label.

        A table that has a ``kind`` keeps it, so ``{"method":{"kind":"bnp"}}`` is BNP with every default.
        """
        told = self.settings.model_dump(mode="json", exclude_defaults=True)
        told["method"].pop("label", None)
        return canonical_json(told)

    @cached_property
    def key(self) -> str:
        """The first 12 hex digits of the SHA-256 of ``canonical``."""
        return short_hash(self.canonical)

    @cached_property
    def label(self) -> str:
        """How tables call the method: its label, or its kind and the options that are not default."""
        return label(self.settings.method)

    @cached_property
    def data(self) -> dict[str, Any]:
        """Every setting as JSON data, the method's label among its options."""
        data = self.settings.model_dump(mode="json")
        data["method"]["label"] = self.label
        return data

    @classmethod
    def from_canonical(cls, text: str, role: Role = "final") -> Cell:
        """The cell that a stored ``canonical`` describes; SuiteError where this version cannot read it."""
        try:
            return cls(Settings.model_validate(frozen(json.loads(text))), role)
        except ValueError as error:  # also pydantic's and json's own
            raise SuiteError(f"settings that this version of bnpbench does not know: {error}") from None


@dataclass(frozen=True)
class Block:
    """Cells that one child process measures, epoch by epoch in turn.

    Attributes:
        cells: in the suite's order.
        measure: how they are measured.
        probe: what is looked at in every so many iterations, if anything.
        baseline: label or kind of the method that the suite sets the others against, if it names one.
    """

    cells: tuple[Cell, ...]
    measure: Measure
    probe: Probe | None = None
    baseline: str | None = None

    @cached_property
    def id(self) -> str:
        """12 hex digits over the members' keys, in any order, and what else moves their rows.

        The keys hold every setting that the members share, so these need no place of their own.
        """
        measure = self.measure.model_dump(mode="json", exclude_defaults=True, exclude={"interleave"})
        probe = None if self.probe is None else self.probe.model_dump(mode="json", exclude_defaults=True)
        members = sorted(cell.key for cell in self.cells)
        return short_hash(canonical_json({"measure": measure, "probe": probe, "members": members}))

    @property
    def canonicals(self) -> dict[str, str]:
        """Key to canonical settings of every cell."""
        return {cell.key: cell.canonical for cell in self.cells}

    @property
    def interleaved(self) -> bool:
        """Whether there is more than one cell to take turns."""
        return len(self.cells) > 1

    def turns(self, epoch: int) -> tuple[int, ...]:
        """Positions in ``cells`` in the order of this epoch (from 1): forward in odd ones, back in even ones."""
        order = tuple(range(len(self.cells)))
        return order if epoch % 2 else order[::-1]


_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(data: object) -> str:
    """JSON with sorted keys and no spaces."""
    return _COMPACT.encode(data)
