"""What a run says while it runs, and how it counts: by the seconds that epochs take, forward only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bnpbench.display import Display, State
from bnpbench.execution.messages import Message, Phase, Tell
from bnpbench.measure.step_costs import Columns, Costs
from bnpbench.records.rows import CellRow, EpochRow
from bnpbench.suite import Block, Cell, Settings, differing, telling, told
from bnpbench.suite.explain import listed
from bnpbench.suite.settings import having
from bnpbench.text import number_of, plain, plural

OPERATOR = {"cpu": 250_000, "cuda": 100_000_000}
"""Operations that take about as long as to launch one operator. Only until the first epochs of a kind are measured."""


class Progress:
    """What a sweep tells, here to nobody."""

    def stage(self, message: Message) -> None:
        """What goes on before the blocks, where it is a phase."""

    def start(self, blocks: Sequence[Block], costs: Mapping[str, Costs] | None = None) -> None:
        """So many blocks are looked at; those that are finished are told next.

        Args:
            blocks: all of them.
            costs: what preflight found, by the cell's key.
        """

    def skipped(self, block: Block) -> None:
        """It was finished before."""

    def phase(self, block: Block, phase: Phase) -> None:
        """What goes on in a block."""

    def epoch(self, block: Block, key: str, row: EpochRow, *, earlier: bool = False) -> None:
        """An epoch of the cell ``key`` is measured, or was in an earlier run."""

    def again(self, block: Block, cells: Sequence[Cell]) -> None:
        """Cells of the block are run anew, from their first epoch or a checkpoint."""

    def finished(self, block: Block, records: Mapping[str, CellRow]) -> None:
        """It is written: its rows of the ``cells`` table, by key."""

    def note(self, text: str) -> None:
        """What a person should know."""

    def stop(self) -> None:
        """The last of the blocks is done, or the run ends early."""


def stages(shown: Display, title: str) -> Tell:
    """Shows the phases that are told, each as what goes on as a whole."""
    begin = shown.now()

    def tell(message: Message) -> None:
        if isinstance(message, Phase):
            shown.show(State(title, message.name, counted=message.far, begin=begin))

    return tell


@dataclass
class _Kind:
    """Cells of one kind, which take the same time an epoch.

    Attributes:
        batch_size: theirs.
        predicted: how long an epoch takes, in no unit.
        over, planned: epochs of this run, of all of them together.
        seconds, measured: of epochs, in this run or an earlier one, and how many.
    """

    batch_size: int
    predicted: float
    over: int = 0
    planned: int = 0
    seconds: float = 0.0
    measured: int = 0


@dataclass
class _Cell:
    """How far one is.

    Attributes:
        kind: that it is of.
        planned: epochs of this run, those of its warm-up among them.
        warmup: epochs that warm it up.
        earlier: epochs measured in an earlier run.
        seen: the last epoch that was measured, in this run or an earlier one.
    """

    kind: _Kind
    planned: int
    warmup: int
    earlier: int = 0
    seen: int = 0

    @property
    def over(self) -> int:
        """Epochs of this run that are over."""
        return self.warmup + self.seen - self.earlier if self.seen > self.earlier else 0


class Work:
    """How much of what cells take is over.

    An epoch takes what those of its kind took. Of a kind that was not measured yet it takes as much longer than those
    of the measured kinds with the nearest batch size as was predicted.

    Args:
        blocks: the cells.
        costs: of a step, by the cell's key; of one that has none every epoch is taken for the same.
    """

    def __init__(self, blocks: Sequence[Block], costs: Mapping[str, Costs]) -> None:
        self.cells: dict[str, _Cell] = {}
        self.kinds: dict[Settings, _Kind] = {}
        self._most = 0.0
        for block in blocks:
            warmup = block.measure.warmup_epochs
            for cell in block.cells:
                alike = _alike(cell.settings)
                if alike not in self.kinds:
                    self.kinds[alike] = _Kind(alike.batch_size, _predicted(cell, costs.get(cell.key)))
                self.cells[cell.key] = _Cell(self.kinds[alike], cell.settings.epochs + warmup, warmup)
                self.kinds[alike].planned += cell.settings.epochs + warmup

    def epoch(self, key: str, number: int, seconds: float, *, earlier: bool) -> None:
        """An epoch of a cell was measured, in this run or an earlier one."""
        with self._changed(key) as cell:
            cell.kind.seconds += seconds
            cell.kind.measured += 1
            if earlier:
                cell.earlier = max(cell.earlier, number)
                cell.planned = max(cell.planned - 1, cell.warmup)
            cell.seen = max(cell.seen, number)
            cell.planned = max(cell.planned, cell.over)  # where intervals decide, there may be more than were foreseen

    def again(self, key: str) -> None:
        """A cell begins anew."""
        with self._changed(key) as cell:
            cell.seen = cell.earlier

    def end(self, key: str) -> None:
        """A cell takes no more, however many epochs were planned."""
        with self._changed(key) as cell:
            cell.planned = cell.over

    @contextmanager
    def _changed(self, key: str) -> Iterator[_Cell]:
        cell = self.cells[key]
        over, planned = cell.over, cell.planned
        yield cell
        cell.kind.over += cell.over - over
        cell.kind.planned += cell.planned - planned

    def portion(self) -> tuple[float, float]:
        """Seconds that are over, and that are ahead; only their ratio is known where nothing is measured."""
        sums: dict[int, list[float]] = {}  # by batch size: seconds, and what was predicted of them
        for kind in self.kinds.values():
            if kind.measured:
                total = sums.setdefault(kind.batch_size, [0.0, 0.0])
                total[0] += kind.seconds
                total[1] += kind.predicted * kind.measured
        over = ahead = 0.0
        for kind in self.kinds.values():
            if kind.measured:
                each = kind.seconds / kind.measured
            elif sums:
                nearest = min(sums, key=lambda size: abs(math.log(size / kind.batch_size)))
                each = kind.predicted * sums[nearest][0] / sums[nearest][1]
            else:
                each = kind.predicted
            over += each * kind.over
            ahead += each * (kind.planned - kind.over)
        return over, ahead

    def share(self) -> float:
        """The part that is over; it never falls, whatever becomes known."""
        over, ahead = self.portion()
        self._most = max(self._most, over / (over + ahead) if ahead else 1.0)
        return self._most


def _alike(settings: Settings) -> Settings:
    """Settings that are the same for cells whose epochs take the same time."""
    own = {name: getattr(settings, name) for name in ("device", "memory_format", "engine", "train_limit", "validation")}
    return settings.costing().model_copy(update={**own, "optimizer": settings.optimizer.model_copy(update={"lr": 1.0})})


def _predicted(cell: Cell, costs: Costs | None) -> float:
    """How long an epoch takes, in no unit: launches and arithmetic of its steps."""
    settings, known = cell.settings, Columns() if costs is None else costs.columns
    if known.flops_model is None or known.operators_per_step is None:
        return 1.0
    flops = known.flops_model + (known.flops_method_executed or 0)
    steps = settings.split_sizes()[0] // settings.batch_size
    return float(max(steps, 1) * (flops + OPERATOR[settings.device] * known.operators_per_step))


class Reporter(Progress):
    """Counts cells and epochs, and shows how far they are.

    Args:
        shown: where it is shown.
        title: what is run.
    """

    def __init__(self, shown: Display, title: str) -> None:
        self.shown, self.title = shown, title
        self.begin, self._stage = shown.now(), stages(shown, title)
        self.work: Work | None = None
        self.counting: float | None = None  # since when there were blocks
        self.cells = self.done = self.failed = self.kept = 0
        self.open_ended = False
        self.labels: dict[str, str] = {}  # of cells that differ in their seeds alone it is the same
        self.names: dict[str, str] = {}
        self.epochs: dict[str, int] = {}
        self.jobs: dict[str, str] = {}  # by the block's id
        self.resumed: dict[str, int] = {}  # the last epoch of an earlier run, until the first of this one

    def stage(self, message: Message) -> None:
        self._stage(message)

    def start(self, blocks: Sequence[Block], costs: Mapping[str, Costs] | None = None) -> None:
        cells = [cell for block in blocks for cell in block.cells]
        self.labels, self.cells = _labels(cells), len(cells)
        self.names = {cell.key: f"{self.labels[cell.key]} seed={cell.settings.seed}" for cell in cells}
        self.epochs = {cell.key: cell.settings.epochs for cell in cells}
        self.work, self.counting = Work(blocks, costs or {}), self.shown.now()
        self.done = self.failed = self.kept = 0
        self.open_ended = any(block.measure.interval is not None for block in blocks)
        self.jobs.clear()
        self.resumed.clear()

    def skipped(self, block: Block) -> None:
        self.kept += len(block.cells)
        self._end(block)
        self._show()

    def phase(self, block: Block, phase: Phase) -> None:
        begun = self.resumed.get(phase.key or "")
        self._job(block, phase.key, phase.text + ("" if begun is None else f", goes on from epoch {begun}"))

    def epoch(self, block: Block, key: str, row: EpochRow, *, earlier: bool = False) -> None:
        assert self.work is not None
        spent = (row["train_seconds"], row.get("evaluation_seconds"), row.get("other_seconds"))
        self.work.epoch(key, row["epoch"], sum(filter(None, spent)), earlier=earlier)
        of = "" if block.measure.interval is not None else f"/{self.epochs[key]}"
        scores = f"loss {row['train_loss']:.4g}, test accuracy {row['test_accuracy']:.4f}"
        if earlier:
            self.resumed[key] = row["epoch"]
        else:
            self.resumed.pop(key, None)
        self._job(block, key, f"{'goes on from ' if earlier else ''}epoch {row['epoch']}{of}, {scores}")

    def again(self, block: Block, cells: Sequence[Cell]) -> None:
        assert self.work is not None
        for cell in cells:
            self.work.again(cell.key)
            self.resumed.pop(cell.key, None)

    def finished(self, block: Block, records: Mapping[str, CellRow]) -> None:
        alike: dict[str, list[str]] = {}
        for key, record in records.items():
            self.done += 1
            if record["status"] in ("oom", "timeout", "crashed", "error"):
                self.failed += 1
                alike.setdefault(f"{record['status']}: {record['message']}", []).append(self.labels[key])
        self._end(block)
        for reason, labels in alike.items():
            self.note(f"{listed(dict.fromkeys(labels))}: {reason}")
        far = self._state().far(self.shown.now())
        for key, record in records.items():
            self.shown.log(f"{self.names[key]}: {record['status']} ({far})")
        self._show()

    def note(self, text: str) -> None:
        self.shown.say(f"warning: {text}")

    def stop(self) -> None:
        if self.kept:
            done = plural(self.kept, "was finished before and is kept", "were finished before and are kept")
            self.shown.say(f"{self.title}: {self.kept} of {number_of(self.cells, 'cell')} {done}")

    def share(self) -> float:
        """The part of this round's work that is over."""
        return 0.0 if self.work is None else self.work.share()

    def left(self) -> float | None:
        """Seconds left; None before the first epoch, and where intervals decide when the last cells end."""
        if self.work is None or self.counting is None:
            return None
        over, ahead = self.work.portion()
        if not over or (self.open_ended and not ahead and self.done + self.kept < self.cells):
            return None
        return (self.shown.now() - self.counting) * ahead / over

    def status(self) -> str:
        """One line on how far the run is."""
        return self._state().far(self.shown.now())

    def _end(self, block: Block) -> None:
        assert self.work is not None
        self.jobs.pop(block.id, None)
        for cell in block.cells:
            self.work.end(cell.key)

    def _job(self, block: Block, key: str | None, doing: str) -> None:
        self.jobs[block.id] = doing if key is None else f"{self.names[key]}: {doing}"
        self._show()

    def _show(self) -> None:
        self.shown.show(self._state())

    def _state(self) -> State:
        counted = [f"{self.done + self.kept}/{self.cells} cells"]
        if self.kept:
            counted.append(f"{self.kept} finished before")
        if self.failed:
            counted.append(f"{self.failed} failed")
        now, left, ended = self.shown.now(), self.left(), self.done + self.kept == self.cells
        return State(
            self.title,
            share=1.0 if ended else min(self.share(), 0.99),
            counted=", ".join(counted),
            begin=self.begin,
            end=None if left is None or ended else now + left,
            jobs=tuple(self.jobs.values()),
        )


def _labels(cells: Sequence[Cell]) -> dict[str, str]:
    """Key to what a line calls the cell: method, batch size, the settings that tell it from its sisters."""
    places = [(cell.label, cell.settings.batch_size) for cell in cells]
    settings = differing([cell.data for cell in cells], having("axis"))
    paths = telling([(*place, cell.settings.seed) for place, cell in zip(places, cells, strict=True)], settings)
    names = [f"{label} N={size}" for label, size in places]
    for path in paths:
        names = [f"{name} {path}={told(value)}" for name, value in zip(names, settings[path], strict=True)]
    return {cell.key: plain(name) for cell, name in zip(cells, names, strict=True)}
