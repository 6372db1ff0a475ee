"""Where a cluster has room for workers, and the workers that took it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bnpbench.errors import DeviceError
from bnpbench.execution.cluster.connection import Node
from bnpbench.execution.cluster.host import Description
from bnpbench.execution.executor import Worker, usable_cores
from bnpbench.suite import Suite


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


@dataclass(frozen=True, eq=False)
class Member:
    """A worker of the cluster, its place and its actor."""

    place: Place
    actor: Any
    description: Description
    worker: Worker

    def shares_cores(self, other: Member) -> bool:
        """Whether both are on one machine, as different nodes that know nothing of each other."""
        mine, theirs = (set(m.description.environment["details"]["affinity"] or ()) for m in (self, other))
        same = self.description.boot == other.description.boot and self.place.node != other.place.node
        return same and bool(mine & theirs)

    @property
    def cores(self) -> int:
        """How many it has to itself."""
        own = self.worker.cores
        return len(usable_cores(self.worker.environment) if own is None else own)


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
