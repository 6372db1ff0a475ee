"""The child's side: its process is prepared, answers one request and ends; torch is imported by what needs it."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import signal
import sys
import threading
import traceback
from multiprocessing import connection
from pathlib import Path
from typing import Any

import psutil

from bnpbench.errors import BnpbenchError, NotApplicable, Origin, ResultsError, SuiteError, refused
from bnpbench.execution.interruption import watch_parent
from bnpbench.execution.messages import Done, Outbox, Refused, Request
from bnpbench.files import appending
from bnpbench.streams import unfailing
from bnpbench.suite import Cell, PluginFile, Settings, load_plugins
from bnpbench.suite.plugins import place_of, plugins_answer

FAULT = 70  # exit code of a child that met an error of a kind that nobody foresaw
LOG_BYTES = 2**20  # that a log may hold; of a longer one the beginning and the end stay


def serve(pipe: connection.Connection, pickled: bytes, plugins: tuple[PluginFile, ...], log: Path | None) -> None:
    """Answer the pickled request through ``pipe``; the last message is ``Done`` or ``Refused``.

    The request may hold options that a plugin defines, so the plugins are loaded before it is read.

    What the machine refuses is an answer too, unless it costs the request's cells, as any other error does, which is
    printed to the log and ends the process with the exit code FAULT.
    """
    request: Request[Any] | None = None
    outbox = Outbox(pipe)
    try:
        _prepare(log)
        if plugins:
            load_plugins(plugins)  # their modules, by which the request's classes are found
        request = pickle.loads(pickled)
        assert request is not None
        with contextlib.nullcontext() if request.costs_its_cells else plugins_answer():
            outbox.send(Done(request.answer(outbox.send)))
    except BnpbenchError as error:
        outbox.send(Refused(error))
    except BaseException as error:
        traceback.print_exc()
        refusal = None if request is not None and request.costs_its_cells else refused(error)
        if refusal is not None:
            outbox.send(Refused(refusal))
        os._exit(FAULT)


def _prepare(log: Path | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when a child ends
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if log is not None:
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            file = appending(log)
        except OSError as error:
            raise ResultsError(f"{log}: cannot be written ({error.strerror})") from error
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
    # What a plugin prints to a full disk ends no cell.
    sys.stdout, sys.stderr = unfailing(sys.stdout), unfailing(sys.stderr)
    faulthandler.enable(file=2)
    threading.Thread(target=watch_parent, daemon=True).start()


def configure(settings: Settings, gpu: int, cores: tuple[int, ...] | None = None) -> None:
    """Set this process up as a cell's settings ask: device, threads, precision, cores, determinism."""
    import torch

    from bnpbench.training.step import set_precision

    assert settings.threads != "auto"
    torch.set_num_threads(settings.threads)
    if settings.device == "cuda":
        torch.cuda.set_device(gpu)
    set_precision(settings)
    torch._dynamo.reset()  # past eight recompilations of one code object torch would run eagerly without a word
    gc.freeze()  # what was imported lives as long as the process: no collection need look at it
    if cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    if settings.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
        # Else every empty tensor is filled, which doubles the kernels of a step.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if settings.device == "cuda":
        from bnpbench.training.engines import make_workspaces

        make_workspaces(torch.device("cuda"))


def message_of(error: Exception, cell: Cell) -> str:
    """What is said of an exception that ends a cell, with the lines of the suite and of the plugin that it is in."""
    place = place_of(error)
    if isinstance(error, SuiteError) and (error := cell.placed(error)).file is not None:
        error = error.at(Origin(Path(error.file.name), error.line, error.key))  # no folder stands in results
    where = "" if place is None else f" ({place.file.name}:{place.line})"
    return " ".join(f"{type(error).__name__}: {error}{where}".split())


def failure(error: Exception, cell: Cell) -> tuple[str, str]:
    """Status and message of a cell that ended in an exception."""
    import torch

    if isinstance(error, NotApplicable):
        return "not-applicable", str(error)
    text = message_of(error, cell)
    memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text
    if not memory:
        return "error", shortened(text, 1000)
    free = psutil.virtual_memory().available
    return "oom", f"{shortened(text, 800)} ({free / 2**30:.1f} GiB were free in the host's memory)"


def shortened(text: str, length: int) -> str:
    """At most so many characters of a message: its first words say what failed, its end says why."""
    if len(text) <= length:
        return text
    head = length // 5
    return f"{text[:head]} ... {text[len(text) - (length - head - 5) :]}"


def shorten(log: Path) -> None:
    """Take the middle out of a log that has become too long; the process that prints goes on behind its end.

    Called by whoever waits for that process: to count what it prints would cost it time while it is timed.
    """
    with contextlib.suppress(OSError):  # it is gone, or the disk is full: no result depends on it
        if log.lstat().st_size <= LOG_BYTES:
            return
        file = os.open(log, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
        try:
            kept, size = LOG_BYTES // 4, os.fstat(file).st_size
            tail = os.pread(file, kept, size - kept)
            os.truncate(file, kept)
            os.write(file, b"\n[... %d bytes are left out here ...]\n" % (size - 2 * kept) + tail)
        finally:
            os.close(file)
