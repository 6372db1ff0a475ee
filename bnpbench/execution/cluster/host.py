"""The node's side: a long-lived actor for each worker, with a forkserver whose children measure the blocks."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

import psutil

from bnpbench.errors import BnpbenchError
from bnpbench.execution.child import shorten
from bnpbench.execution.children import LocalChild, ask, start_forkserver, stop_forkserver
from bnpbench.execution.messages import Describe, Done, Pickled, Refused
from bnpbench.files import private_folder
from bnpbench.records.documents import Environment
from bnpbench.suite import PluginFile

RAYS = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")  # what Ray sets for an actor; a local run has the machine's own
BOOT = Path("/proc/sys/kernel/random/boot_id")
LOOK_SECONDS = 1.0  # between looks for a new checkpoint


@dataclass(frozen=True)
class Description:
    """What the run's process must know of a host.

    Attributes:
        environment: of its machine, see ``measure.environment.describe``.
        gpu: number of its CUDA device there, None without one.
        boot: of the running kernel; equal on two hosts of one machine.
        folder: where its processes keep checkpoints.
    """

    environment: Environment
    gpu: int | None
    boot: str
    folder: Path


@dataclass(frozen=True)
class Report:
    """News of a child.

    Attributes:
        messages: that it sent.
        checkpoints: content of new ones, by the cell's key.
        death: how it ended; None while it goes on.
        log: what it printed, once it has ended.
    """

    messages: list[Any] = field(default_factory=list)
    checkpoints: dict[str, bytes] = field(default_factory=dict)
    death: str | None = None
    log: bytes = b""


class Host:
    """One worker of a node.

    Args:
        modules: that the forkserver imports besides torch.
        plugins: of the suite, with their bytes: the run's disk is not seen here.
    """

    def __init__(self, modules: Sequence[str], plugins: Sequence[tuple[PluginFile, bytes]]) -> None:
        environment = _node_environment()
        self.gpu = _gpu(environment)
        for name in RAYS:
            os.environ.pop(name, None)
            if name in environment:
                os.environ[name] = environment[name]
        self.folder = Path(tempfile.mkdtemp(dir=private_folder()))
        self.plugins = tuple(self._install(file, content) for file, content in plugins)
        self.child: LocalChild | None = None
        self.listening = threading.Lock()
        self.kept: dict[Path, int] = {}
        start_forkserver(modules)

    def describe(self) -> Description:
        environment = ask(Describe(self.gpu or 0))
        boot = BOOT.read_text(encoding="ascii").strip() if BOOT.exists() else ""
        return Description(environment, self.gpu, boot, self.folder)

    def ask(self, request: bytes) -> Done[Any] | Refused:
        """The answer to a request that takes a moment."""
        try:
            return Done(ask(Pickled(request), self.plugins))
        except BnpbenchError as error:
            return Refused(error)

    def run(self, request: bytes, checkpoints: Mapping[str, bytes]) -> Report:
        """Begin a request and give its first news; ``checkpoints`` hold what is known of its cells, by key."""
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        self._checkpoints.mkdir()
        for key, content in checkpoints.items():
            (self._checkpoints / f"{key}.pt").write_bytes(content)
        self.kept = {path: path.stat().st_mtime_ns for path in self._checkpoints.glob("*.pt")}
        self._log.unlink(missing_ok=True)
        self.child = LocalChild(Pickled(request), self.plugins, self._log)
        return self.listen()

    def listen(self) -> Report:
        """Wait for news of the running request."""
        assert self.child is not None
        with self.listening:
            while not connection.wait(self.child.wait_on(), LOOK_SECONDS):
                shorten(self._log)
                if found := self._new_checkpoints():
                    return Report(checkpoints=found)
            alive = self.child.alive()
            messages = list(self.child.messages())
            if any(isinstance(message, Done | Refused) for message in messages):
                self.child.join()
                alive = False
            if alive:
                return Report(messages, self._new_checkpoints())
            self.child.kill()  # it is dead; this closes its inbox
            return Report(messages, death=self.child.death(), log=self._printed())

    def kill(self) -> Report:
        """End the running request; back when its process is gone."""
        assert self.child is not None
        self.child.process.kill()  # not under the lock, which whoever listens holds until the process ends
        with self.listening:
            self.child.kill()
            return Report(death=self.child.death(), log=self._printed())

    def close(self) -> None:
        """End all that this host started."""
        if self.child is not None:
            self.kill()
        stop_forkserver()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    @property
    def _checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def _install(self, file: PluginFile, content: bytes) -> PluginFile:
        path = self.folder / file.sha256 / file.path.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return replace(file, path=path)

    def _new_checkpoints(self) -> dict[str, bytes]:
        found = {}
        for path in self._checkpoints.glob("*.pt"):
            if (changed := path.stat().st_mtime_ns) != self.kept.get(path):
                self.kept[path] = changed
                found[path.stem] = path.read_bytes()
        return found

    def _printed(self) -> bytes:
        shorten(self._log)
        return self._log.read_bytes() if self._log.exists() else b""


def _node_environment() -> dict[str, str]:
    """The variables of the node itself: its process started this one."""
    raylet = psutil.Process().parent()
    return dict(os.environ) if raylet is None else raylet.environ()


def _gpu(environment: Mapping[str, str]) -> int | None:
    """The number that CUDA gives, in the node's environment, to the GPU that Ray assigned; None without one."""
    import ray

    assigned = [str(name) for name in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]
    return device_number(assigned, environment.get("CUDA_VISIBLE_DEVICES"))


def device_number(assigned: Sequence[str], visible: str | None) -> int | None:
    """The place of an assigned GPU among the visible ones.

    Args:
        assigned: ids as Ray has them; at most one.
        visible: ``CUDA_VISIBLE_DEVICES`` of the node; None: all, in CUDA's order.
    """
    if not assigned:
        return None
    return int(assigned[0]) if visible is None else visible.split(",").index(assigned[0])
