"""The way to a Ray cluster: connect quietly, see its nodes, place something on one of them."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, TextIO

from bnpbench.datasets.storage import VARIABLE
from bnpbench.errors import BnpbenchError
from bnpbench.execution.interruption import SIGNALS

EXTRA = "bnpbench[cluster]"
REACH_SECONDS = 5.0  # Ray itself would try for two minutes
START_TRIES = 2  # of a cluster here: on a busy machine Ray's processes wait for each other in vain now and then
OBJECT_STORE = 256 * 2**20  # bytes, of a cluster that is started here: only checkpoints and logs are large


@dataclass(frozen=True)
class Node:
    """A machine of the cluster.

    Attributes:
        id: Ray's, random hexadecimal digits.
        cpus: Ray's resource, what ``ray start --num-cpus`` gave.
        gpus: Ray's resource.
    """

    id: str
    cpus: float
    gpus: int

    @property
    def name(self) -> str:
        """How tables call it; no host name, no address."""
        return f"node-{self.id[:8]}"


class Actor(Protocol):
    """A handle of Ray: its methods are those of the placed class, each with ``remote``."""


class Ray:
    """A connection to a cluster, or a cluster of this machine alone.

    Args:
        address: HOST:PORT of the head, ``auto`` for a cluster that runs on this machine, ``local`` to start one.
        own_folder: whether workers may import what lies in the current folder.

    Attributes:
        errors: what Ray raises when a worker is gone.

    Raises:
        BnpbenchError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, address: str, own_folder: bool = False) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        if address == "local" and "RAY_AUTH_MODE" not in os.environ:
            # Others on this machine and network could run code in it; Ray's own token would stay in the home folder.
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.ray = _import_ray()
        self.errors: type[Exception] = self.ray.exceptions.RayError
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == "local":
            options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE}
        else:
            _check_reachable(address)
        self.stdout = sys.stdout
        if os.environ.get(VARIABLE):
            os.environ[VARIABLE] = os.path.abspath(os.environ[VARIABLE])
        # Ray has the workers look for modules in the folder that is the current one now, before all others.
        elsewhere = contextlib.nullcontext() if own_folder else contextlib.chdir("/")
        with _own_handlers(), elsewhere:
            self._connect(address, options)
        sys.stdout = _WithoutRay(self.stdout)

    def _connect(self, address: str, options: dict[str, Any]) -> None:
        for left in reversed(range(START_TRIES if address == "local" else 1)):
            try:
                self.ray.init(address=address, **options)
                return
            except BaseException as error:
                self.ray.shutdown()
                if not isinstance(error, Exception):
                    raise
                if isinstance(error, ConnectionError) and address == "auto":  # Ray's words name its own options
                    raise BnpbenchError(
                        "--cluster auto: no Ray cluster runs on this machine; start one with `ray start --head`, "
                        "or give the HOST:PORT of one elsewhere"
                    ) from error
                if not left:  # no cluster, other versions, no token, a start that failed: they have no common base
                    raise BnpbenchError(f"--cluster {address}: {' '.join(str(error).split())}") from error

    def nodes(self) -> list[Node]:
        """Those that are alive."""
        found = [(node["NodeID"], node["Resources"]) for node in self.ray.nodes() if node["Alive"]]
        return [Node(name, has.get("CPU", 0), int(has.get("GPU", 0))) for name, has in found]

    def call(self, node: Node, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Call a function on a node, whatever else the node does."""
        strategy = self._on(node)
        remote = self.ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(function)
        future: Future[Any] = remote.remote(*arguments).future()  # see ``ask``
        return future

    def place(self, node: Node, cpus: float, gpus: int, cls: type, *arguments: object) -> Actor:
        """An actor on a node: as soon as so much of the node is free, and never anywhere else."""
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "max_concurrency": 4}
        placed = self.ray.remote(cls).options(**options, scheduling_strategy=self._on(node))
        actor: Actor = placed.remote(*arguments)
        return actor

    def ask(self, actor: Actor, method: str, *arguments: object) -> Future[Any]:
        """Call a method of an actor; a RayError in the future says that the actor is gone.

        It is waited for where signals are heeded: Ray's own waiting swallows what a handler raises.
        """
        future: Future[Any] = getattr(actor, method).remote(*arguments).future()
        return future

    def kill(self, actor: Actor) -> None:
        """End an actor's process, if it is there."""
        self.ray.kill(actor)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # messages that Ray held back, to print like ones together
                self.ray.shutdown()
        finally:
            sys.stdout = self.stdout

    def _on(self, node: Node) -> object:
        return self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)


@contextlib.contextmanager
def _own_handlers() -> Iterator[None]:
    """Put the handlers of signals back: Ray takes SIGTERM for itself."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _import_ray() -> ModuleType:
    try:
        import ray
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise BnpbenchError(f"--cluster needs Ray, which is not installed: pip install '{EXTRA}'") from error
    return ray


def _check_reachable(address: str) -> None:
    """Raises BnpbenchError where no cluster answers at an address."""
    if address == "auto" and "RAY_ADDRESS" not in os.environ:
        return
    place = os.environ["RAY_ADDRESS"] if address == "auto" else address
    host, colon, port = place.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 2**16) or "/" in host:
        raise BnpbenchError(f"--cluster {place}: give HOST:PORT of the cluster's head, auto or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except OSError as error:
        raise BnpbenchError(
            f"--cluster {place}: nothing answers there ({error.strerror or error}); is it what `ray start --head` said?"
        ) from error


class _WithoutRay(io.TextIOBase):
    """stdout without what Ray's own threads print there on nodes that are gone, addresses included."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if threading.current_thread().name.startswith("ray_"):
            return len(text)
        return self.stream.write(text)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()


def versions_asker() -> Callable[[Sequence[str]], dict[str, str | None]]:
    """A function that a node of any version can run: it travels by value, because it is not a name of a module."""

    def versions(packages: Sequence[str]) -> dict[str, str | None]:
        from importlib.metadata import PackageNotFoundError, version

        found: dict[str, str | None] = {}
        for package in packages:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = None
        return found

    return versions
