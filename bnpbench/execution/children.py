"""The parent's side: child processes from one forkserver that has imported torch."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, forkserver
from multiprocessing.process import BaseProcess
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any, Protocol

from bnpbench.cache import user_cache
from bnpbench.errors import BnpbenchError
from bnpbench.execution import interruption
from bnpbench.execution.child import FAULT, serve
from bnpbench.execution.messages import Answer, Done, Inbox, Refused, Request
from bnpbench.files import private_folder, remove_private_folder
from bnpbench.measure.known import processor_kind
from bnpbench.streams import open_missing
from bnpbench.suite import PluginFile

# Without them glibc returns every temporary over 1 MB to the system, and its pages are faulted in anew each step.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
LOST = 255  # exit code that multiprocessing gives where it lost sight of a process
START_TRIES, START_SECONDS = 4, 0.3  # of a process, where the forkserver was killed
END_SECONDS = 5.0  # for a process that has answered to end by itself
LOOK_SECONDS = 1.0  # between looks for a signal whose exception was lost


class Child(Protocol):
    """A process that answers one request, as its parent sees it, wherever it is."""

    @property
    def lost(self) -> bool:
        """Whether nobody sees any more what becomes of it: its worker or the server of processes is gone."""

    def alive(self) -> bool:
        """Whether it goes on; ask before ``messages``: what a dead child sent is all there."""

    def messages(self) -> Iterator[Any]:
        """What has arrived and not been read yet; does not wait."""

    def join(self) -> None:
        """Wait a moment for the end of a child that has sent its last message: it may hang in what it still does."""

    def kill(self) -> None:
        """End it now."""

    def death(self) -> str:
        """How it ended, for a person."""


class LocalChild:
    """A child on this machine.

    Args:
        request: see ``messages``.
        plugins: loaded before the request is answered.
        log: file that takes what the child prints; none: it prints where this process does.

    Attributes:
        inbox: messages from the child; the last is ``Done`` or ``Refused``, if there is any.
        process: its ``sentinel`` is ready when it has ended.

    Raises:
        BnpbenchError: no process can be started.
    """

    def __init__(self, request: Request[Any], plugins: tuple[PluginFile, ...] = (), log: Path | None = None) -> None:
        context = multiprocessing.get_context("forkserver")
        near_end, far_end = context.Pipe(duplex=False)
        self.inbox = Inbox(near_end)
        arguments = (far_end, pickle.dumps(request), plugins, log)
        self.process: BaseProcess = context.Process(target=serve, args=arguments)
        try:
            self._begin()
        except BaseException:
            self.inbox.close()
            raise
        finally:
            far_end.close()

    def _begin(self) -> None:
        for left in reversed(range(START_TRIES)):
            start_forkserver()
            try:
                with _no_main_module(), interruption.uninterrupted():  # a half-sent request would end the forkserver
                    self.process.start()
                return
            except (EOFError, ConnectionError) as error:  # it was killed, and may not be seen to have ended yet
                if not left:
                    raise BnpbenchError(
                        "no child process can be started: the server that would do it ends each time; is the memory or "
                        "the number of processes limited here (ulimit -v, -u)? What was finished is kept; the same "
                        "command goes on from there"
                    ) from error
                time.sleep(START_SECONDS)

    @property
    def lost(self) -> bool:
        return self.process.exitcode == LOST  # the forkserver was killed: messages may be cut, too

    def alive(self) -> bool:
        return self.process.is_alive()

    def messages(self) -> Iterator[Any]:
        return self.inbox.messages()

    def wait_on(self) -> list[int]:
        """What is ready when it has sent something or ended."""
        return [self.inbox.fileno(), self.process.sentinel]

    def join(self) -> None:
        self.process.join(END_SECONDS)

    def kill(self) -> None:
        """End it now and wait for its end."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        if self.lost and self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it goes on without its server
                os.kill(self.process.pid, signal.SIGKILL)
        self.inbox.close()

    def death(self) -> str:
        code = self.process.exitcode
        if code == LOST:
            return "lost with the server of child processes, which was killed"
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


def start_forkserver(modules: Sequence[str] = ()) -> None:
    """Start it if it does not run: it imports torch, and ``modules``, for all children while this process goes on."""
    open_missing()  # a daemon's are closed, and the children's pipes would take their numbers
    _choose_folder()
    multiprocessing.set_forkserver_preload(["bnpbench.execution.preload", *modules])
    with _environment(MALLOC | interpreter() | _vector_units() | _compile_cache()), _no_main_module():
        forkserver.ensure_running()


def _choose_folder() -> None:
    """Let multiprocessing put its sockets into this process's own folder, so that a kill leaves none for long."""
    before = tempfile.tempdir
    tempfile.tempdir = str(private_folder())
    try:
        get_temp_dir()
    finally:
        tempfile.tempdir = before


def interpreter() -> dict[str, str]:
    """Variables with which an interpreter finds the modules that this one does, and none in the current folder.

    Python would look there first for whatever ``-c`` or ``-m`` runs, and the folder may be a stranger's.
    """
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _vector_units() -> dict[str, str]:
    """Torch compiles for the vector units that the processor says it has; it tries none of them first.

    To try each kind takes six seconds in an empty folder; and where that fails, as on a machine so busy that it takes a
    minute to load, all that is compiled from then on is for lesser ones.
    """
    name = "TORCHINDUCTOR_VEC_ISA_OK"
    return {name: os.environ.get(name, "1")}


def _compile_cache() -> dict[str, str]:
    """Compiled code is kept for later runs in the user's cache folder, where nobody else can put any.

    Each kind of processor has a folder of its own: g++ makes code for the very processor that it runs on, and torch
    finds a library by its source and g++'s options, which are the same for all.
    """
    kind = processor_kind()
    if asked := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        folder = os.path.join(asked, kind)
        try:
            _try(folder)
        except OSError as error:  # torch could not be imported, or every compiled cell would end in this error
            raise BnpbenchError(
                f"TORCHINDUCTOR_CACHE_DIR = {asked}: no compiled code can be kept there ({error.strerror}); set it to "
                "a folder that can be written to, or unset it"
            ) from error
        return {"TORCHINDUCTOR_CACHE_DIR": folder}
    folder = str(user_cache() / "compiled" / kind)
    try:
        _try(folder, 0o700)
    except OSError:
        return {}  # torch then takes a folder among the temporary ones
    return {"TORCHINDUCTOR_CACHE_DIR": folder}


@functools.cache
def _try(folder: str, mode: int = 0o777) -> None:
    """Make a folder where there is none, and write there, once. Raises OSError."""
    os.makedirs(folder, mode, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(4096))  # a full disk has room for a file's name


def stop_forkserver() -> None:
    """End the forkserver at once; by itself it would take seconds to free what it imported, with our stdout open."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    remove_private_folder()


class ChildDied(BnpbenchError):
    """A child ended before it had answered."""


def ask(
    request: Request[Answer],
    plugins: tuple[PluginFile, ...] = (),
    log: Path | None = None,
    told: Callable[[Any], None] = lambda message: None,
) -> Answer:
    """The answer to a request that takes a moment; its errors are raised here.

    Args:
        request, plugins, log: as of ``LocalChild``.
        told: gets what the child sends before its answer.

    Raises:
        ChildDied: the child ended without an answer.
    """
    child = LocalChild(request, plugins, log)
    try:
        while True:
            connection.wait(child.wait_on(), LOOK_SECONDS)
            interruption.check()
            alive = child.alive()
            for message in child.messages():
                if isinstance(message, Done | Refused):
                    answer: Answer = message.result()
                    return answer
                told(message)
            if not alive:
                text = f"the process that was asked for a {type(request).__name__} was {child.death()}"
                if child.process.exitcode == FAULT:
                    raise RuntimeError(text)
                raise ChildDied(f"{text}; is the memory limited here, or does something else end processes?")
    finally:
        child.kill()


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables for the forkserver, which takes the environment of its first start."""
    before = {k: os.environ.get(k) for k in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Keep multiprocessing from importing the caller's script in every child: nothing of it is needed there."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
