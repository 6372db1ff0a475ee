"""A request on a worker of the cluster, as the sweep sees it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from pathlib import Path
from typing import Any

from bnpbench.execution.cluster.connection import Ray
from bnpbench.execution.cluster.host import Report
from bnpbench.execution.cluster.places import Member
from bnpbench.execution.messages import RunBlock
from bnpbench.files import appending, fresh

KILL_SECONDS = 10.0  # that a node may take to end a process


class Remote:
    """A request on a worker of the cluster.

    Args:
        ray: the connection.
        member: the worker.
        lose: is told when the worker is gone.
        request: to be run.
        log: file that gets what the process printed, when it has ended.

    Attributes:
        news: the report that is waited for; None after the last.
        lost: whether the worker is gone.
    """

    def __init__(self, ray: Ray, member: Member, lose: Callable[[Member], None], request: RunBlock, log: Path) -> None:
        self.ray, self.member, self.tell, self.log = ray, member, lose, log
        self.checkpoints, self.block = request.checkpoints, request.block.id
        self.inbox: list[Any] = []
        self.lost, self.end = False, ""
        there = replace(request, checkpoints=request.checkpoints and member.description.folder / "checkpoints")
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

    def _call(self, method: str, *arguments: Any) -> Future[Any]:
        return self.ray.ask(self.member.actor, method, *arguments)

    def _lose(self) -> None:
        self.lost, self.news = True, None
        self.tell(self.member)

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
