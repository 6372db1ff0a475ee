"""What a run is asked, and what of it can be refused before torch is imported, which takes seconds: a device that is
not there, data that may not be fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from bnpbench.cache import expanded
from bnpbench.datasets import storage
from bnpbench.datasets.base import DatasetPlugin
from bnpbench.errors import BnpbenchError, DataError, DeviceError
from bnpbench.measure.driver import driver_count, driver_failure
from bnpbench.measure.known import usable_cores
from bnpbench.results import check_writable
from bnpbench.suite import Cell, Settings, Suite
from bnpbench.text import number_of


@dataclass(frozen=True)
class Options:
    """How a suite is run; none of it is a setting of a cell but ``device``, ``epochs`` and the threads that
    ``jobs`` leaves.

    Attributes:
        out: folder of the results.
        device: auto, cpu, cuda or cuda:i.
        only: filters, ``KEY=VALUE,...``; alternatives within one, all of them together.
        seeds: the first so many of the seed axis.
        epochs: instead of the suite's.
        data_dir: folder of the data sets.
        offline: fetch nothing.
        fresh: measure finished cells again.
        timeout: seconds a cell.
        jobs: blocks at once; on a cluster, on each node without a GPU.
        shard: (i, n): every n-th block, from the i-th (1 to n).
        cluster: a Ray cluster instead of this machine: HOST:PORT of its head, ``auto`` for one that runs here,
            ``local`` to start one here.
    """

    out: Path = Path("results")
    device: str = "auto"
    only: tuple[str, ...] = ()
    seeds: int | None = None
    epochs: int | None = None
    data_dir: Path | None = None
    offline: bool = False
    fresh: bool = False
    timeout: float | None = None
    jobs: int = 1
    shard: tuple[int, int] | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", expanded(self.out))
        object.__setattr__(self, "data_dir", self.data_dir and expanded(self.data_dir))

    def selection(self, suite: Suite) -> Selection:
        """The cells that are asked for, as this machine would probably run them; torch is not asked."""
        threads = max(usable_cores() // self.jobs, 1)
        return Selection(suite, likely_device(self.device), threads, self.only, self.seeds, self.epochs)


@dataclass(frozen=True)
class Selection:
    """Cells of a suite, expanded once where it is known what stands for ``auto``.

    Attributes:
        suite: whose cells.
        device, threads: what ``auto`` stands for.
        only, seeds, epochs: as of ``Options``.
    """

    suite: Suite
    device: Literal["cpu", "cuda"]
    threads: int
    only: tuple[str, ...] = ()
    seeds: int | None = None
    epochs: int | None = None

    def on(self, device: Literal["cpu", "cuda"], threads: int) -> Selection:
        """The same for another device or other threads."""
        same = (self.device, self.threads) == (device, threads)
        return self if same else replace(self, device=device, threads=threads)

    @cached_property
    def whole(self) -> Selection:
        """All cells of the suite, whatever is asked for of it."""
        return replace(self, only=(), seeds=None) if self.only or self.seeds else self

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """See ``Suite.cells``."""
        return self.suite.cells(
            device=self.device, threads=self.threads, only=self.only, seeds=self.seeds, epochs=self.epochs
        )

    def finals(self, scores: Mapping[str, float | None]) -> tuple[Cell, ...]:
        """See ``Suite.finals``."""
        return self.suite.finals(
            scores, device=self.device, threads=self.threads, only=self.only, seeds=self.seeds, epochs=self.epochs
        )


def check(suite: Suite, options: Options) -> Selection:
    """The cells that a run is asked for; what can be refused before torch is imported is refused.

    Raises:
        BnpbenchError: the suite cannot be run here.
    """
    selection = options.selection(suite)
    if options.jobs > 1 and suite.measure.interleave:
        raise BnpbenchError(
            f"--jobs {options.jobs}: the suite {suite.name} interleaves cells to compare their times, and blocks that "
            "run side by side disturb each other; leave --jobs out, or take `interleave` out of [measure]"
        )
    if options.jobs > 1 and suite.measure.interval is not None:
        raise BnpbenchError(
            f"--jobs {options.jobs}: the suite {suite.name} sets `interval`, which asks for undisturbed times; "
            "leave --jobs out, or take `interval` out of [measure]"
        )
    if options.cluster is None:  # else devices and data are the workers'
        check_device(options.device, f"--device {options.device}")
        chosen = [cell.settings for cell in selection.cells]
        if "cuda" in suite.devices() and any(settings.device == "cuda" for settings in chosen):
            check_device("cuda", 'device = "cuda"', remedy="--only device=cpu leaves the cells that need one out")
        check_data({type(settings.dataset) for settings in chosen}, options.data_dir, options.offline)
    check_writable(options.out)
    return selection


def device_index(asked: str) -> int | None:
    """The number in ``cuda:i``, 0 for ``cuda`` and ``auto``, None for ``cpu``. Raises DeviceError for anything else."""
    name, colon, index = asked.partition(":")
    if name in ("auto", "cpu") and not colon:
        return 0 if name == "auto" else None
    if name != "cuda" or (colon and not index.isdecimal()):
        raise DeviceError(f"--device {asked}: give auto, cpu, cuda or cuda:i")
    return int(index or 0)


def check_device(
    asked: str, where: str, remedy: str = "use --device cpu", count: Callable[[], int | None] = driver_count
) -> None:
    """Raises DeviceError where the driver already says that the device is not there.

    Args:
        asked: auto, cpu, cuda or cuda:i.
        where: begins the message.
        remedy: what else can be done than to look for a GPU.
        count: tells how many there are, None where only torch can tell.
    """
    index = device_index(asked)
    there = None if asked == "auto" or index is None else count()
    if there is not None and index is not None:
        demand_device(where, index, there, remedy)


def likely_device(asked: str) -> Literal["cpu", "cuda"]:
    """What ``--device`` probably means, before torch is asked: ``auto`` is CUDA where the driver shows a device."""
    return "cpu" if device_index(asked) is None or (asked == "auto" and driver_count() == 0) else "cuda"


def resolve_device(asked: str, count: int, unusable: str | None = None) -> Literal["cpu", "cuda"]:
    """What ``--device`` means where torch sees so many devices, and why none. Raises DeviceError."""
    index = device_index(asked)
    if index is None or (asked == "auto" and not count):
        return "cpu"
    demand_device(f"--device {asked}", index, count, unusable=unusable)
    return "cuda"


def demand_device(
    where: str, index: int, count: int, remedy: str = "use --device cpu", unusable: str | None = None
) -> None:
    """Raises DeviceError unless there are more than ``index`` devices; see ``check_device``."""
    if count == 0:
        if reason := unusable or driver_failure():
            raise DeviceError(f"{where}: {reason}; {remedy}")
        raise DeviceError(
            f"{where}: torch sees no CUDA device here; {remedy}, or install a CUDA build of torch on a machine with a "
            "GPU and its driver"
        )
    if index >= count:
        raise DeviceError(f"{where}: this machine has {number_of(count, 'CUDA device')}, numbered from 0")


def check_cuda_only(settings: Iterable[Settings], capability: str | None = None) -> None:
    """Raises DeviceError for what only a CUDA device can do, asked for on the CPU, or of one that cannot.

    Args:
        settings: of cells.
        capability: of the device's multiprocessors, such as 9.0; None where nobody tells.
    """
    for cell in settings:
        if cell.device == "cuda" and cell.precision == "tf32" and capability is not None and float(capability) < 8:
            raise DeviceError(
                f'precision = "tf32": this GPU (compute capability {capability}) has none, which came with 8.0, and '
                "would compute in float32 (--only precision=float32 leaves these cells out)"
            )
        if cell.device == "cpu" and cell.engine == "graphed":
            raise DeviceError('engine = "graphed" records CUDA graphs; on the CPU take "eager" or "compiled"')
        if cell.device == "cpu" and cell.precision == "tf32":
            raise DeviceError(
                'precision = "tf32" is a mode of CUDA devices; on the CPU take "float32" or "bf16" '
                "(--only precision=float32 leaves its cells out)"
            )


def demand_devices(devices: int, device: str, *, first: int, gpus: int, cores: int) -> None:
    """Raises DeviceError unless a cell can have so many devices.

    Args:
        devices: how many the cell asks for.
        device: cpu or cuda.
        first: number of the first GPU; the others follow it.
        gpus: of this machine.
        cores: that a cell may use.
    """
    if devices == 1:
        return
    if device == "cuda" and first + devices > gpus:
        raise DeviceError(
            f"devices = {devices}: this machine has {number_of(gpus, 'CUDA device')}, "
            f"{gpus - first} from cuda:{first} on"
        )
    if device == "cpu" and devices > cores:
        raise DeviceError(f"devices = {devices}: on the CPU each takes a core, and a cell has {cores} here")


def check_data(datasets: Iterable[type[DatasetPlugin]], data_dir: Path | None, offline: bool) -> None:
    """Raises DataError for a data set that is not there, or damaged, and may not be fetched."""
    root = storage.root(data_dir)
    for dataset in sorted(datasets, key=lambda cls: str(cls.word())) if storage.is_offline(offline) else ():
        if (reason := dataset.unfit(root)) is not None:
            raise DataError(f"{reason} (offline: nothing is downloaded)")
