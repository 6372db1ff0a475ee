"""A block here, or one cell over several devices: a process for each, watched by the child that was asked for it.

torch's elastic launcher is not used: it may take half a minute to end the ranks that a dead one leaves waiting, starts
a Python error again like a crash, and leaves the ranks behind when it is killed itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bnpbench.execution.block import run_block
from bnpbench.execution.interruption import watch_parent
from bnpbench.execution.messages import FAILED, Finished, Inbox, Message, Outbox, RunBlock, Tell
from bnpbench.training.parallel import Group

RESTARTS = 3  # of one cell; a rank that dies again and again has a fault of its own
PATIENCE = timedelta(hours=2)  # of a rank that waits while the first one evaluates; a death is seen at once
# Where the ranks, which are forks, find an open file that has no name, so that a kill leaves none behind: on Linux.
# Nobody else can open it, or elsewhere the one that has a name, and join the group.
FILES = Path("/proc/self/fd")
GRACE_SECONDS = 1.0  # for the end of a dying process to show, and for a rank to end by itself


def run(request: RunBlock, emit: Tell) -> None:
    """Measure the request's cells in this process, or in one for each of a cell's devices."""
    if request.cells[0].settings.devices == 1:
        run_block(request, emit)
    else:
        run_on_ranks(request, emit)


def run_on_ranks(request: RunBlock, emit: Tell) -> None:
    """Measure the request's one cell on its devices.

    The first rank's messages are passed on, or those of the first to fail. Where a rank is killed, all start again
    from the last checkpoint, and the epochs since are told again.

    Must run before this process does anything with a device or a tensor: the ranks are its forks.
    """
    deaths: list[str] = []
    _forget_checkpoint(request)
    while True:
        with _Ranks(replace(request, fresh=False)) as ranks:
            death = ranks.run(lambda message: emit(_noted(message, deaths)))
        if death is None:
            return
        rank, code = death
        if code >= 0 or len(deaths) == RESTARTS:
            _end_like(code)
        deaths.append(f"rank {rank} was killed by {signal.Signals(-code).name}")
        print(f"{deaths[-1]}: all ranks start again from the last checkpoint", flush=True)


class _Ranks:
    """The processes of one try; none of them outlives the ``with``."""

    def __init__(self, request: RunBlock) -> None:
        context = multiprocessing.get_context("fork")  # of a child that is a fork itself: there in milliseconds
        kind: Callable[..., Any] = tempfile.TemporaryFile if FILES.exists() else tempfile.NamedTemporaryFile
        self.file = kind(prefix="bnpbench-ranks-")
        store = FILES / str(self.file.fileno()) if FILES.exists() else Path(self.file.name)
        self.processes: list[BaseProcess] = []
        self.inboxes: list[Inbox] = []
        for rank in range(request.cells[0].settings.devices):
            near, far = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(request, rank, store, far))
            process.start()
            far.close()
            self.processes.append(process)
            self.inboxes.append(Inbox(near))

    def __enter__(self) -> _Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
        for inbox in self.inboxes:
            inbox.close()
        with contextlib.suppress(FileNotFoundError):  # torch has removed it
            self.file.close()

    def run(self, emit: Tell) -> tuple[int, int] | None:
        """Pass messages on until the cell is finished; else the rank that died and its exit code."""
        while self.inboxes:
            connection.wait([*(inbox.fileno() for inbox in self.inboxes), *self._sentinels()])
            for message in self._messages():
                if not isinstance(message, Finished):
                    emit(message)
                    continue
                failed = message.row["status"] in FAILED
                if failed and (death := self._death(GRACE_SECONDS)) is not None:  # of which this failure is an echo
                    return death
                emit(message)
                if not failed:
                    self._let_end()
                return None
            if (death := self._death(0.0)) is not None:
                return death
        raise RuntimeError("all ranks ended, and none has told what became of the cell")

    def _messages(self) -> Iterator[Any]:
        for inbox in list(self.inboxes):
            yield from inbox.messages()
            if inbox.ended:  # the rank, perhaps in the middle of a message
                self.inboxes.remove(inbox)
                inbox.close()

    def _sentinels(self) -> list[int]:
        return [process.sentinel for process in self.processes if process.exitcode is None]

    def _death(self, seconds: float) -> tuple[int, int] | None:
        """The first rank found that ended otherwise than by itself, within so many seconds."""
        ended = connection.wait(self._sentinels(), timeout=seconds)
        for process in self.processes:
            if process.sentinel in ended:
                process.join()  # its exit code shows a moment after the sentinel
        codes = [process.exitcode for process in self.processes]
        return next(((rank, code) for rank, code in enumerate(codes) if code), None)

    def _let_end(self) -> None:
        for process in self.processes:
            process.join(GRACE_SECONDS)


def _rank(request: RunBlock, rank: int, store: Path, pipe: connection.Connection) -> None:
    """One rank's process."""
    threading.Thread(target=watch_parent, daemon=True).start()
    settings = request.cells[0].settings
    ranks, outbox = settings.devices, Outbox(pipe)

    def tell(message: Message) -> None:
        failed = isinstance(message, Finished) and message.row["status"] in FAILED
        if rank == 0 or failed:
            outbox.send(message)
        if failed:  # the others may hang in a collective, or fail for want of this one: the parent ends us all
            signal.pause()

    _stay_on_this_machine()
    if settings.device == "cuda":
        torch.cuda.set_device(request.gpu + rank)
    dist.init_process_group(
        "nccl" if settings.device == "cuda" else "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=ranks,
        timeout=PATIENCE,
    )
    run_block(request, tell, Group(torch.device(settings.device), rank, ranks))
    dist.destroy_process_group()


def _stay_on_this_machine() -> None:
    """Gloo would else look up the host's name, and listen to its network."""
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if loopback is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)


def _forget_checkpoint(request: RunBlock) -> None:
    """Under ``fresh``, that of an earlier run: a restart goes on from what this run keeps."""
    if request.fresh and request.checkpoints is not None:
        (request.checkpoints / f"{request.cells[0].key}.pt").unlink(missing_ok=True)


def _noted(message: Message, deaths: list[str]) -> Message:
    """The message; a finished cell's says what it went through."""
    if not (isinstance(message, Finished) and deaths):
        return message
    told = [message.row["message"], f"{', '.join(deaths)}; went on from the last checkpoint"]
    return replace(message, row={**message.row, "message": "; ".join(filter(None, told))})


def _end_like(code: int) -> None:
    """End this process as a rank ended, so that the cell gets the same status as one that ran here."""
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(1)
