"""The parent's side: child processes from one forkserver that has imported torch."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import types
from collections.abc import Iterator, Sequence
from multiprocessing import connection, forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bnpbench.cache import user_cache
from bnpbench.execution import interruption
from bnpbench.execution.child import serve
from bnpbench.execution.messages import Done, Refused
from bnpbench.suite import PluginFile

# Without them glibc returns every temporary over 1 MB to the system, and its pages are faulted in anew each step.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


END_SECONDS = 5.0  # for a process that has answered to end by itself
LOOK_SECONDS = 1.0  # between looks for a signal whose exception was lost


class Child:
    """One running request.

    Args:
        request: see ``messages``; bytes are taken as pickled already.
        plugins: loaded before the request is answered.
        log: file that takes what the process prints; none: it prints where this one does.

    Attributes:
        channel: messages from the child; at its end there is ``Done``, ``Refused`` or nothing.
        process: its ``sentinel`` is ready when the process has ended.
        lost: never: the worker is this process.
    """

    lost = False

    def __init__(self, request: Any, plugins: tuple[PluginFile, ...] = (), log: Path | None = None) -> None:
        start_forkserver()
        context = multiprocessing.get_context("forkserver")
        self.channel, far_end = context.Pipe(duplex=False)
        pickled = request if isinstance(request, bytes) else pickle.dumps(request)
        arguments = (far_end, pickled, plugins, log)
        self.process: BaseProcess = context.Process(target=serve, args=arguments)
        with _no_main_module(), interruption.uninterrupted():  # a half-sent request would end the forkserver
            self.process.start()
        far_end.close()

    def alive(self) -> bool:
        """Whether the process goes on; ask before ``messages``: what a dead process sent is all there."""
        return self.process.is_alive()

    def messages(self) -> Iterator[Any]:
        """What has arrived and not been read yet; does not wait."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while self.channel.poll():
                yield self.channel.recv()

    def join(self) -> None:
        """Wait a moment for the end of a process that has sent its last message: it may hang in what it still does."""
        self.process.join(END_SECONDS)

    def kill(self) -> None:
        """End the process now and wait for its end."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.channel.close()

    def death(self) -> str:
        """How the process ended, for a person: the signal's name or the exit code."""
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


def start_forkserver(modules: Sequence[str] = ()) -> None:
    """Start it if it does not run: it imports torch, and ``modules``, for all children while this process goes on."""
    multiprocessing.set_forkserver_preload(["bnpbench.execution.preload", *modules])
    with _environment(MALLOC | _compile_cache()), _no_main_module():
        forkserver.ensure_running()


def _compile_cache() -> dict[str, str]:
    """Compiled code is kept for later runs in the user's cache folder, where nobody else can put any."""
    if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
        return {}
    folder = user_cache() / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return {}  # torch then takes a folder among the temporary ones
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder)}


def stop_forkserver() -> None:
    """End the forkserver at once; by itself it would take seconds to free what it imported, with our stdout open."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def ask(request: Any, plugins: tuple[PluginFile, ...] = (), log: Path | None = None) -> Any:
    """The answer to a request that takes a moment; its errors are raised here."""
    child = Child(request, plugins, log)
    try:
        while True:
            connection.wait([child.channel, child.process.sentinel], LOOK_SECONDS)
            interruption.check()
            alive = child.alive()
            for message in child.messages():
                match message:
                    case Done(answer):
                        return answer
                    case Refused(error):
                        raise error
            if not alive:
                raise RuntimeError(f"the process that answers {type(request).__name__} {child.death()}")
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
