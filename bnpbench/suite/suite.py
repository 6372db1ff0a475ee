"""A suite: what to run and what it is expected to show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from pydantic import BaseModel

from bnpbench.datasets.base import DatasetPlugin
from bnpbench.errors import Origin, SuiteError
from bnpbench.methods.base import MethodPlugin
from bnpbench.records.documents import (
    BoundsRecord,
    CellRecord,
    ClaimRecord,
    CombinationRecord,
    MeasureRecord,
    ReferenceRecord,
    SelectRecord,
    ShortenedRecord,
    SideRecord,
    SuiteRecord,
)
from bnpbench.records.rows import GAIN
from bnpbench.registry import ships
from bnpbench.suite.cells import Block, Cell, Role
from bnpbench.suite.check import warnings
from bnpbench.suite.claims import Combination, combinations_of, rows_of, table_of_cells
from bnpbench.suite.document import AtEpoch, AtEpochs, Claim, Measure, Probe, Reference, Select
from bnpbench.suite.explain import shown
from bnpbench.suite.matching import combinations, only_pattern
from bnpbench.suite.plugins import PluginFile
from bnpbench.suite.settings import SCHEMA_VERSION, Settings, having
from bnpbench.suite.vocabulary import Vocabulary
from bnpbench.text import number_of
from bnpbench.version import __version__


@dataclass(frozen=True)
class Row:
    """One point of the sweep.

    Attributes:
        settings: with "auto" still in them.
        group: where it stands on the axes that are not interleaved.
        group_of_final: the same without the axes that are chosen from.
        seed_rank: its seed's place among the seeds.
        chosen_rank: its place among the values, or the combinations of them, that ``[select]`` chooses from; 0
            without one.
        family: where it stands on all other axes.
        origins: as of its cell.
    """

    settings: Settings
    group: str
    group_of_final: str
    seed_rank: int
    chosen_rank: int
    family: tuple[int, ...]
    origins: Mapping[str, Origin]


@dataclass(frozen=True)
class Suite:
    """A suite that has passed every check that needs neither data nor a device.

    Attributes:
        name: a file name's worth of letters; the folder of its results.
        source: what it repeats, such as a table of a paper.
        description: free text.
        path: its file.
        measure: how its cells are measured.
        metric: of the end of training, that says what a method buys and that the targets are of.
        targets: values of it whose time to reach is told.
        baseline: label or kind of the method that the others are set against, if the suite names one.
        references: published figures.
        claims: what it is expected to show.
        select: the axis, or the axes together, whose best value is chosen before the finals, if any.
        probe: the neuron looked at in every so many iterations, if any.
        plugins: the Python files that were run for it.
        reads: the files that it says its plugins read.
        words: what may stand in it, the kinds of its plugins among them.
        changes: settings that were asked for beside it, ``KEY=VALUE`` each.
    """

    name: str
    source: str
    description: str
    path: Path
    measure: Measure
    metric: str
    targets: tuple[float, ...]
    baseline: str | None
    references: tuple[Reference, ...]
    claims: tuple[Claim, ...]
    select: Select | None
    probe: Probe | None
    plugins: tuple[PluginFile, ...]
    reads: tuple[str, ...]
    words: Vocabulary = field(repr=False)
    _rows: tuple[Row, ...] = field(repr=False)
    changes: tuple[str, ...] = ()
    _made: dict[object, tuple[Cell, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def cells(
        self,
        *,
        device: Literal["cpu", "cuda"],
        threads: int,
        only: Sequence[str] = (),
        seeds: int | None = None,
        epochs: int | None = None,
    ) -> tuple[Cell, ...]:
        """The cells to run, in the order of the sweep, each once.

        Where ``[select]`` chooses, these are its trials: on its first seeds, role ``trial``.

        Args:
            device, threads: what "auto" stands for; the processes of several devices share the threads.
            only: ``KEY=VALUE,VALUE`` texts; a cell must match one value of each.
            seeds: only the first so many seeds of the axis.
            epochs: instead of the suite's; schedules stay as they are.

        Returns:
            Each setting once, with nothing left at "auto".

        Raises:
            SuiteError: nothing matches, a value of ``only`` is no cell's, or a number is below 1.
        """
        for name, number in (("--seeds", seeds), ("--epochs", epochs), ("--threads", threads)):
            if number is not None and number < 1:
                raise SuiteError(f"{name} must be at least 1, not {number}")
        if seeds is not None and seeds > (most := len(self.seeds())):
            raise SuiteError(
                f"--seeds {seeds}: the suite {self.name} has {number_of(most, 'seed')}; ask for no more, or add "
                "some to its [sweep]"
            )
        count = self.select.seeds if self.select else seeds
        auto = {"device": device, "threads": threads}
        role: Role = "trial" if self.select else "final"
        cells = self._expanded(auto, role, epochs)
        pairs = zip(self._rows, cells, strict=True)
        counted = _unique(cell for row, cell in pairs if count is None or row.seed_rank < count)
        if not only:
            return counted
        _check_only(_unique(cells), only, self.words)
        return _only(counted, only, self.words)

    def _expanded(self, auto: Mapping[str, Any], role: Role, epochs: int | None) -> tuple[Cell, ...]:
        """Each row's cell, made once however often and of whichever part it is asked for."""
        key = (*auto.items(), role, epochs)
        if key not in self._made:
            self._made[key] = tuple(_resolved(row, auto, role, epochs) for row in self._rows)
        return self._made[key]

    def finals(
        self,
        scores: Mapping[str, float | None],
        *,
        device: Literal["cpu", "cuda"],
        threads: int,
        only: Sequence[str] = (),
        seeds: int | None = None,
        epochs: int | None = None,
    ) -> tuple[Cell, ...]:
        """The cells that follow from the trials: the best value of each family, on the whole training set.

        Args:
            scores: what ``[select]`` goes by, by the key of each trial that is finished; None of one that has no such
                number (it diverged). A value counts whose trials all have one, by their mean. A family without such a
                value has no finals, and one with a trial that is not finished has none yet: it might be the best.
            device, threads, only, seeds, epochs: as of ``cells``.

        Returns:
            As of :meth:`cells`, on the whole training set.
        """
        assert self.select is not None
        auto = {"device": device, "threads": threads}
        tried: dict[tuple[tuple[int, ...], int], list[float | None]] = {}
        waiting: set[tuple[int, ...]] = set()
        for row, cell in zip(self._rows, self._expanded(auto, "trial", epochs), strict=True):
            if row.seed_rank < self.select.seeds:
                tried.setdefault((row.family, row.chosen_rank), []).append(scores.get(cell.key))
                if cell.key not in scores:
                    waiting.add(row.family)
        best: dict[tuple[int, ...], tuple[float, int]] = {}
        for (family, rank), found in tried.items():
            known = [score for score in found if score is not None]
            if family in waiting or len(known) < len(found):
                continue
            if family not in best or mean(known) > best[family][0]:
                best[family] = mean(known), rank
        rows = [
            row
            for row in self._rows
            if (seeds is None or row.seed_rank < seeds) and best.get(row.family, (0.0, -1))[1] == row.chosen_rank
        ]
        whole = {**auto, "validation": 0.0}
        cells = _unique(_resolved(row, whole, "final", epochs) for row in rows)
        return _only(cells, only, self.words) if cells else ()

    def blocks(self, cells: Sequence[Cell]) -> tuple[Block, ...]:
        """The blocks that cells of this suite are measured in, in the order of their first cells.

        Args:
            cells: of :meth:`cells` or :meth:`finals`.

        Returns:
            Blocks of cells that take turns, or of one cell each.
        """
        members: dict[tuple[Role, str], list[Cell]] = {}
        for cell in cells:
            members.setdefault((cell.role, cell.group or cell.key), []).append(cell)
        return tuple(Block(tuple(block), self.measure, self.probe, self.baseline) for block in members.values())

    def warnings(self, cells: Sequence[Cell]) -> list[str]:
        """What some of its cells ask for and hardly mean, a sentence each.

        Args:
            cells: of this suite.

        Returns:
            Sentences, none where nothing is doubtful.
        """
        return warnings(cells, self.measure)

    def _inks(self) -> dict[str, Any]:
        """How the methods of its plugins are drawn, by their kind; a report has no plugins at hand."""
        methods = self.words.registry.kinds(MethodPlugin).items()
        own = {kind: cls.ink for kind, cls in methods if cls.ink and not ships(cls)}
        return {"inks": {kind: asdict(ink) for kind, ink in own.items()}} if own else {}

    def devices(self) -> frozenset[str]:
        """The devices that cells ask for: "auto", "cpu", "cuda"."""
        return frozenset(row.settings.device for row in self._rows)

    def datasets(self) -> frozenset[type[DatasetPlugin]]:
        """The classes of the data sets that cells read."""
        return frozenset(type(row.settings.dataset) for row in self._rows)

    def engines(self) -> frozenset[str]:
        """The engines of cells, as the suite asks for them."""
        return frozenset(row.settings.engine for row in self._rows)

    def seeds(self) -> frozenset[int]:
        """The seeds of the sweep."""
        return frozenset(row.settings.seed for row in self._rows)

    def _asked(self) -> dict[str, Any]:
        """The metric, the baseline and the changes, where any were asked for."""
        metric = self.metric if self.metric != GAIN else ""
        told = {"metric": metric, "baseline": self.baseline, "changes": list(self.changes)}
        return {name: value for name, value in told.items() if value}

    def document(self, cells: Sequence[Cell], *, epochs: int | None = None) -> SuiteRecord:
        """What ``suite.json`` holds.

        Args:
            cells: of the whole suite, whatever is run now.
            epochs: that ``cells`` train for instead of the suite's.

        Returns:
            The resolved suite, with the keys of all its cells.
        """
        finals = [cell for cell in cells if cell.role == "final"] if self.select else list(cells)
        table, whole = table_of_cells(finals, self.words), table_of_cells(cells, self.words)
        blocks = {cell.key: block.id for block in self.blocks(cells) for cell in block.cells}
        return SuiteRecord(
            schema_version=SCHEMA_VERSION,
            name=self.name,
            source=self.source,
            description=self.description,
            bnpbench=__version__,
            measure=MeasureRecord(**_told(self.measure)),
            targets=list(self.targets),
            references=[
                ReferenceRecord(
                    **_told(reference), cells=[cells[row].key for row in rows_of(whole, reference.cell).tolist()]
                )
                for reference in self.references
            ],
            claims=[_claim(claim, combinations_of(claim, table), finals) for claim in self.claims],
            select=SelectRecord(**_told(self.select)) if self.select else None,
            probe=_told(self.probe) if self.probe else None,
            shortened=ShortenedRecord(epochs=epochs) if any(cell.shorter for cell in cells) else None,
            **self._asked(),
            **self._inks(),
            cells=[_cell(cell, blocks[cell.key]) for cell in cells],
        )


def _resolved(row: Row, changes: Mapping[str, Any], role: Role, epochs: int | None) -> Cell:
    """A row's cell: what stands at "auto" replaced, and whatever else ``changes`` says.

    The engine is graphed on one CUDA device where the optimizer can be, eager elsewhere.
    """
    made = {n: v for n, v in changes.items() if n not in having("auto") or getattr(row.settings, n) == "auto"}
    if row.settings.engine == "auto":
        alone = made.get("device", row.settings.device) == "cuda" and row.settings.devices == 1
        recorded = alone and row.settings.optimizer.traced
        made["engine"] = "graphed" if recorded else "eager"
    if "threads" in made:
        made["threads"] = max(made["threads"] // row.settings.devices, 1)
    made |= {"epochs": epochs} if epochs else {}
    other = epochs is not None and epochs != row.settings.epochs
    if other:
        made["schedule"] = row.settings.schedule.over(row.settings.epochs)
    group = row.group_of_final if role == "final" else row.group
    whole = row.settings.epochs if other else None
    return Cell(row.settings.model_copy(update=made), role, group, whole, row.origins)


def _unique(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    found: dict[str, Cell] = {}
    for cell in cells:
        found.setdefault(cell.canonical, cell)
    return tuple(found.values())


def _check_only(cells: tuple[Cell, ...], only: Sequence[str], words: Vocabulary) -> None:
    """Raises SuiteError for a value of ``only`` that no cell has."""
    table = table_of_cells(cells, words)
    for text in only:
        alternatives = combinations(only_pattern(text, words), words)
        for pattern in alternatives:
            if not table.matching(pattern).any():
                message, near = table.why_none(pattern)
                word = _value(text, pattern)
                if isinstance(word, str) and "=" in word:
                    message += f"; a comma parts values of one setting: write --only {word} by itself"
                told = f"{shown(word)}: {message}" if len(alternatives) > 1 else message
                raise SuiteError(f"--only {text}: {told}", closest=near)


def _value(text: str, pattern: Any) -> object:
    """What a pattern of ``--only KEY=VALUE`` wants of the key."""
    for name in text.partition("=")[0].split("."):
        pattern = pattern[name.strip()]
    return pattern


def _only(cells: tuple[Cell, ...], only: Sequence[str], words: Vocabulary) -> tuple[Cell, ...]:
    table = table_of_cells(cells, words)
    mask = table.matching({})
    for text in only:
        pattern = only_pattern(text, words)
        matches = table.matching(pattern)
        if not matches.any():
            message, near = table.why_none(pattern)
            raise SuiteError(f"--only {text}: {message}", closest=near)
        mask &= matches
    if not mask.any():
        raise SuiteError(f"no cell matches all of --only {' --only '.join(only)}")
    return tuple(cell for cell, kept in zip(cells, mask.tolist(), strict=True) if kept)


def _cell(cell: Cell, block: str) -> CellRecord:
    settings = cell.settings.model_dump(mode="json")
    settings["method"].pop("label")
    whole = {"epochs": cell.whole} if cell.whole else {}
    return CellRecord(key=cell.key, label=cell.label, block=block, role=cell.role, settings=settings, **whole)


def _claim(claim: Claim, combinations: Iterable[Combination], cells: Sequence[Cell]) -> ClaimRecord:
    sides: tuple[Literal["left", "right"], ...] = ("left", "right") if claim.right else ("left",)
    return ClaimRecord(
        says=claim.says,
        metric=claim.metric,
        target=claim.target,
        question=claim.question,
        bounds=BoundsRecord(**_told(claim.bounds)),
        **{name: SideRecord(pattern=getattr(claim, name).pattern, at=_at(claim.at_of(name))) for name in sides},
        where=claim.where,
        combinations=[
            CombinationRecord(
                where=c.where, **{name: _keys([cells[row] for row in getattr(c, name).tolist()]) for name in sides}
            )
            for c in combinations
        ],
    )


def _keys(cells: Iterable[Cell]) -> dict[str, str]:
    """Seed → key."""
    return {str(cell.settings.seed): cell.key for cell in cells}


def _at(at: str | AtEpoch | AtEpochs) -> str | dict[str, Any]:
    return at if isinstance(at, str) else _told(at)


def _told(table: BaseModel) -> dict[str, Any]:
    """A table as JSON data."""
    return dict(json.loads(table.model_dump_json()))
