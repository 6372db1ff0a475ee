"""The run's side: workers come and go, requests go out, rows come back."""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal

from bnpbench.errors import BnpbenchError, DataError, DeviceError, WorkersLost
from bnpbench.execution.cluster.connection import Actor, Node, Ray, versions_asker
from bnpbench.execution.cluster.host import Description, Host, Report
from bnpbench.execution.executor import Worker, modules_for, share, usable_cores
from bnpbench.execution.messages import Preflight, RunBlock, Tell
from bnpbench.execution.options import Options
from bnpbench.execution.progress import Progress
from bnpbench.files import appending, fresh
from bnpbench.measure.step_costs import Costs
from bnpbench.records.documents import Environment
from bnpbench.suite import Suite
from bnpbench.text import number_of, plural

ALIKE = ("bnpbench", "torch")  # packages of which workers must have the run's own version
SCAN_SECONDS = 2.0  # between looks for nodes that were added
HEAD_SECONDS = 30.0  # that the cluster's head may be silent; after twice that Ray would end this process
START_SECONDS = 60.0  # that a node may take before the others begin without it
TRIES = 3  # of a node to have a worker
KILL_SECONDS = 10.0  # that a node may take to end a process


@dataclass(frozen=True)
class Place:
    """Room for one worker on a node.

    Attributes:
        node: of the cluster.
        number, count: which of how many on that node.
        gpu: whether it has one of the node's GPUs.
    """

    node: Node
    number: int
    count: int
    gpu: bool

    @property
    def name(self) -> str:
        return self.node.name if self.count == 1 else f"{self.node.name}/{self.number + 1}"


@dataclass(frozen=True, eq=False, kw_only=True)
class RemoteWorker(Worker):
    """A worker of the cluster.

    Attributes:
        place: where it is.
        actor: Ray's handle of its ``Host``.
        boot, folder: as of ``Description``.
    """

    place: Place
    actor: Actor
    boot: str
    folder: Path

    def shares_cores(self, other: RemoteWorker) -> bool:
        """Whether both are on one machine, as different nodes that know nothing of each other."""
        mine, theirs = (set(worker.environment.details.affinity or ()) for worker in (self, other))
        return self.boot == other.boot and self.place.node != other.place.node and bool(mine & theirs)

    @property
    def own_cores(self) -> int:
        """How many it has to itself."""
        return len(usable_cores(self.environment) if self.cores is None else self.cores)


def device_of(asked: str, suite: Suite, nodes: Sequence[Node]) -> Literal["cpu", "cuda"]:
    """What ``--device`` means on these nodes. Raises DeviceError."""
    if asked not in ("auto", "cpu", "cuda"):
        raise DeviceError(f"--device {asked}: on a cluster give auto, cpu or cuda; Ray chooses which GPU")
    there = any(node.gpus for node in nodes)
    for where, wanted in ((f"--device {asked}", asked == "cuda"), ('device = "cuda"', "cuda" in suite.devices())):
        if wanted and not there:
            raise DeviceError(f"{where}: no node of the cluster has a GPU as a Ray resource (ray start --num-gpus)")
    return "cuda" if asked == "cuda" or (asked == "auto" and there) else "cpu"


def places_on(nodes: Iterable[Node], device: str, suite: Suite, jobs: int) -> list[Place]:
    """A place for each GPU where GPUs are wanted; on other nodes so many as there are jobs, if the CPU is wanted."""
    wanted = {device if name == "auto" else name for name in suite.devices()}
    found = []
    for node in nodes:
        gpu = bool(node.gpus) and "cuda" in wanted
        count = node.gpus if gpu else min(jobs, max(int(node.cpus), 1))
        if node.cpus and (gpu or "cpu" in wanted):
            found += [Place(node, number, count, gpu) for number in range(count)]
    return found


class Cluster:
    """The nodes of a Ray cluster: a worker for each GPU, or ``options.jobs`` for each node without.

    Nodes that are there at the start must be fit for the suite; one that joins later and is not is left out.

    Args:
        options: of the run.
        suite: to be run.
        progress: is told of nodes that are left out.

    Raises:
        BnpbenchError: no cluster, a node of another version, a device that no node has.
    """

    def __init__(self, options: Options, suite: Suite, progress: Progress) -> None:
        assert options.cluster is not None
        self.options, self.suite, self.progress = options, suite, progress
        self.modules = modules_for(suite)
        self.plugins = [(file, file.path.read_bytes()) for file in suite.plugins]
        self.timing = bool(suite.measure.interleave) or suite.measure.interval is not None
        self.versions = {package: version(package) for package in ALIKE}
        self.there: list[RemoteWorker] = []
        self.known: set[Place] = set()
        self.tries: Counter[Place] = Counter()
        self.arrivals: SimpleQueue[tuple[Place, RemoteWorker | Exception]] = SimpleQueue()
        self.check: Preflight | None = None  # what a late node must pass
        self.threads = 1
        self.ray = Ray(options.cluster, own_folder=bool(suite.plugins))
        self.nodes, self.heard = self.ray.nodes(), time.monotonic()
        self.closing = threading.Event()
        self.watching = threading.Thread(target=self._watch, daemon=True)
        self.watching.start()
        try:
            self.device = device_of(options.device, suite, self.nodes)
            self._gather()
        except BaseException:
            self.close()
            raise

    @property
    def environments(self) -> Sequence[Environment]:
        return [worker.environment for worker in self.there]

    def workers(self) -> Sequence[Worker]:
        """Those that are there; where times are compared, one for each set of cores."""
        offered: list[RemoteWorker] = []
        for worker in self.there:
            if not (self.timing and any(worker.shares_cores(other) for other in offered)):
                offered.append(worker)
        return offered

    def begin(self) -> None:
        """It has."""

    def preflight(self, request: Preflight, told: Tell) -> dict[str, Costs]:
        """Let a worker check all cells, and each other node whether it has the data; nothing is told meanwhile."""
        request = replace(request, data_dir=_absolute(request.data_dir))
        of_kind = {cell.settings.dataset.kind: cell for cell in request.cells}
        self.check = replace(request, cells=tuple(of_kind.values()))
        self._admit_late()
        if not self.there:
            raise WorkersLost("no worker is left; what was finished is kept")
        nodes = {worker.place.node: worker for worker in reversed(self.there)}
        first, *others = reversed(nodes.values())
        asked = [(first, self._ask(first, request)), *((worker, self._ask(worker, self.check)) for worker in others)]
        answers = [self._answer(worker, future) for worker, future in asked]
        if missing := [error for error in answers if isinstance(error, DataError)]:
            raise DataError("\n".join(map(str, missing)))
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        costs: dict[str, Costs] = answers[0]
        return costs

    def start(self, worker: Worker, request: RunBlock, log: Path) -> RemoteChild:
        assert isinstance(worker, RemoteWorker)
        return RemoteChild(self.ray, worker, self.lose, replace(request, data_dir=_absolute(request.data_dir)), log)

    def wait(self, children: Sequence[RemoteChild], timeout: float) -> None:
        futures = [child.news for child in children if child.news is not None]
        if futures:
            wait_for(futures, min(timeout, SCAN_SECONDS), FIRST_COMPLETED)
        else:
            time.sleep(min(timeout, SCAN_SECONDS))
        if time.monotonic() - self.heard > HEAD_SECONDS:
            raise WorkersLost("the cluster's head does not answer; what was finished is kept")
        self._scan()
        self._admit_late()

    def lose(self, worker: RemoteWorker) -> None:
        """Forget a worker that is gone; its node may get another, if it is still there."""
        if worker in self.there:
            self.ray.kill(worker.actor)  # it may live behind a broken connection
            self.there.remove(worker)
            self.known.discard(worker.place)
            self.tries[worker.place] = 0  # it could have one

    def close(self) -> None:
        """Every worker ends its processes, then itself."""
        self.closing.set()
        wait_for([self.ray.ask(worker.actor, "close") for worker in self.there], KILL_SECONDS)
        leaving = threading.Thread(target=self._leave, daemon=True)  # without its head it would take forever
        leaving.start()
        leaving.join(KILL_SECONDS)

    def _leave(self) -> None:
        self.watching.join()
        for worker in self.there:
            self.ray.kill(worker.actor)
        self.ray.close()

    def _watch(self) -> None:
        """Keep the list of nodes fresh, in a thread of its own: a head that is gone keeps who asks it waiting."""
        while not self.closing.wait(SCAN_SECONDS):
            with contextlib.suppress(RuntimeError, OSError, self.ray.errors):
                self.nodes, self.heard = self.ray.nodes(), time.monotonic()

    def _gather(self) -> None:
        """Get the workers of the nodes that are there, or at least one where others keep us waiting."""
        begin, told = time.monotonic(), False
        self._scan()
        if not self.known:
            raise BnpbenchError(f"--cluster {self.options.cluster}: no node has a CPU as a Ray resource")
        errors: list[BnpbenchError] = []
        while waiting := len(self.known) - len(self.there) - len(errors):
            late = time.monotonic() - begin > START_SECONDS
            if late and self.there:
                break
            if late and not told:
                self.progress.note(
                    f"{number_of(waiting, 'worker')} {plural(waiting, 'is', 'are')} not there yet; another program "
                    "may hold the CPUs of the node"
                )
                told = True
            try:
                place, arrived = self.arrivals.get(timeout=1.0)
            except Empty:
                continue
            if isinstance(arrived, RemoteWorker):
                self.there.append(arrived)
            elif isinstance(arrived, BnpbenchError):
                errors.append(arrived)
            else:
                reason = str(arrived).strip().splitlines()[-1]
                errors.append(BnpbenchError(f"{place.name}: no worker starts there: {reason}"))
        if errors:
            raise BnpbenchError("\n".join(sorted({str(error) for error in errors}))) from errors[0]
        self.there.sort(key=lambda worker: worker.place.name)
        self.threads = max(min(worker.own_cores for worker in self.there), 1)
        self._tell_of_shared_cores()

    def _scan(self) -> None:
        """Begin to open the places that are new."""
        for place in places_on(self.nodes, self.device, self.suite, self.options.jobs):
            if place not in self.known and self.tries[place] < TRIES:
                self.known.add(place)
                self.tries[place] += 1
                threading.Thread(target=self._open, args=(place,), daemon=True).start()

    def _open(self, place: Place) -> None:
        """Start a worker and report it, or why there is none; in a thread of its own, for a node may be busy."""
        try:
            self.arrivals.put((place, self._opened(place)))
        except Exception as error:  # the run's own thread tells it
            self.arrivals.put((place, error))

    def _opened(self, place: Place) -> RemoteWorker:
        found = self.ray.call(place.node, versions_asker(), ALIKE).result()
        for package, ours in self.versions.items():
            if (theirs := found[package]) != ours:
                has = f"has {package} {theirs}" if theirs else f"has no {package}"
                raise BnpbenchError(f"{place.node.name} {has}, this run has {package} {ours}; install the same on both")
        cpus, gpus = place.node.cpus / place.count, int(place.gpu)
        actor = self.ray.place(place.node, cpus if cpus < 1 else int(cpus), gpus, Host, self.modules, self.plugins)
        description: Description = self.ray.ask(actor, "describe").result()
        environment = description.environment
        if place.gpu and (description.gpu is None or description.gpu >= environment.hardware.gpus):
            raise DeviceError(f"{place.name}: Ray counts a GPU there, torch sees no such CUDA device")
        worker = RemoteWorker(
            name=place.name,
            environment=environment,
            gpu=description.gpu,
            cores=share(environment, place.number, place.count),
            jobs=place.count,
            place=place,
            actor=actor,
            boot=description.boot,
            folder=description.folder,
        )
        if self.check is not None:  # only late ones: the first are asked all together
            self._check_late(worker, self.check)
        return worker

    def _check_late(self, worker: RemoteWorker, check: Preflight) -> None:
        """Raises BnpbenchError where a late worker is not fit for the cells."""
        answer = self._answer(worker, self._ask(worker, check))
        cores = worker.own_cores
        if not isinstance(answer, Exception) and cores < self.threads:
            answer = BnpbenchError(
                f"{worker.name} has {number_of(cores, 'core')}, the cells were given {self.threads} threads"
            )
        if isinstance(answer, Exception):
            self.ray.kill(worker.actor)
            raise answer

    def _admit_late(self) -> None:
        while not self.arrivals.empty():
            place, arrived = self.arrivals.get()
            if isinstance(arrived, RemoteWorker):
                self.there.append(arrived)
                self._tell_of_shared_cores()
            elif isinstance(arrived, BnpbenchError):  # stays known: it will not become fit
                self.progress.note(f"left out: {arrived}")
            else:
                self.known.discard(place)  # gone again

    def _tell_of_shared_cores(self) -> None:
        if idle := len(self.there) - len(self.workers()):
            self.progress.note(
                f"{number_of(idle, 'worker')} {plural(idle, 'waits', 'wait')}, as cores are shared with others "
                "and the suite compares times"
            )

    def _ask(self, worker: RemoteWorker, request: Preflight) -> Future[Any]:
        return self.ray.ask(worker.actor, "ask", pickle.dumps(request))

    def _answer(self, worker: RemoteWorker, future: Future[Any]) -> Any:
        """What was asked for, or the error, with the node's name."""
        try:
            return future.result().result()
        except self.ray.errors as error:
            return BnpbenchError(f"{worker.place.node.name} was lost before anything ran: {error}")
        except DataError as error:
            return DataError(f"{worker.place.node.name}: {error}")
        except BnpbenchError as error:
            return error


def _absolute(folder: Path | None) -> Path | None:
    """A worker has another current folder."""
    return folder and folder.absolute()


class RemoteChild:
    """A child on a worker of the cluster; see ``children.Child``.

    Args:
        ray: the connection.
        worker: whose ``Host`` starts it.
        lose: is told when the worker is gone.
        request: to be answered.
        log: file that gets what the child printed, when it has ended.

    Attributes:
        news: the report that is waited for; None after the last.
        lost: whether the worker is gone.
    """

    def __init__(
        self, ray: Ray, worker: RemoteWorker, lose: Callable[[RemoteWorker], None], request: RunBlock, log: Path
    ) -> None:
        self.ray, self.worker, self.lose, self.log = ray, worker, lose, log
        self.checkpoints, self.block = request.checkpoints, request.block.id
        self.inbox: list[Any] = []
        self.lost, self.end = False, ""
        there = replace(request, checkpoints=request.checkpoints and worker.folder / "checkpoints")
        kept = {} if request.fresh else self._kept([cell.key for cell in request.cells])
        self.news: Future[Report] | None = self._call("run", pickle.dumps(there), kept)

    def alive(self) -> bool:
        while self.news is not None and self.news.done():
            try:
                report = self.news.result()
            except self.ray.errors:
                self._lose()
                return False
            self._take(report)
            self.news = self._call("listen") if report.death is None else None
        return self.news is not None

    def messages(self) -> Iterator[Any]:
        arrived, self.inbox = self.inbox, []
        yield from arrived

    def join(self) -> None:
        """Nothing is left to wait for: the last report comes when the process has ended."""

    def kill(self) -> None:
        if self.news is None:
            return
        try:
            self._take(self._call("kill").result(KILL_SECONDS))
        except (self.ray.errors, FutureTimeoutError):
            self._lose()
        self.news = None

    def death(self) -> str:
        return self.end

    def _call(self, method: str, *arguments: object) -> Future[Any]:
        return self.ray.ask(self.worker.actor, method, *arguments)

    def _lose(self) -> None:
        self.lost, self.news = True, None
        self.lose(self.worker)

    def _take(self, report: Report) -> None:
        self.inbox += report.messages
        self.end = report.death or ""
        for key, content in report.checkpoints.items():
            self._keep(key, content)
        if report.log:
            with open(appending(self.log), "wb") as file:
                file.write(report.log)

    def _kept(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The checkpoints that are here, by the cell's key."""
        paths = [] if self.checkpoints is None else [self.checkpoints / f"{key}.pt" for key in keys]
        return {path.stem: path.read_bytes() for path in paths if path.is_file() and not path.is_symlink()}

    def _keep(self, key: str, content: bytes) -> None:
        if self.checkpoints is not None:
            self.checkpoints.mkdir(exist_ok=True)
            temporary = fresh(self.checkpoints / f".{self.block}.tmp")  # as ``Store.checkpoint_temporary``
            temporary.write_bytes(content)
            temporary.replace(self.checkpoints / f"{key}.pt")
