"""The child's side: prepares the process and answers one request."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import sys
import threading
import traceback
from multiprocessing import connection
from pathlib import Path
from typing import Any

from bnpbench.errors import BnpbenchError, ResultsError, refused
from bnpbench.execution.interruption import watch_parent
from bnpbench.execution.messages import Describe, Done, Preflight, Profile, Refused, Request, RunBlock, Smoke
from bnpbench.execution.pipe import Outbox
from bnpbench.files import appending
from bnpbench.streams import unfailing
from bnpbench.suite import PluginFile, load_plugins

FAULT = 70  # exit code of a child that met an error of a kind that nobody foresaw
LOG_BYTES = 2**20  # that a log may hold; of a longer one the beginning and the end stay


def serve(pipe: connection.Connection, pickled: bytes, plugins: tuple[PluginFile, ...], log: Path | None) -> None:
    """Answer the pickled request through ``pipe``; the last message is ``Done`` or ``Refused``.

    The request may hold options that a plugin defines, so the plugins are loaded before it is read.

    What the machine refuses is an answer too, but to a block: that costs its cells, as any other error does, which is
    printed to the log and ends the process with the exit code FAULT.
    """
    request, channel = None, Outbox(pipe)
    try:
        _prepare(log)
        if plugins:
            load_plugins(plugins)  # their modules, by which the request's classes are found
        request = pickle.loads(pickled)
        channel.send(Done(answer(channel, request)))
    except BnpbenchError as error:
        channel.send(Refused(error))
    except BaseException as error:
        traceback.print_exc()
        refusal = None if isinstance(request, RunBlock) else refused(error)
        if refusal is not None:
            channel.send(Refused(refusal))
        os._exit(FAULT)


def answer(channel: Outbox, request: Request[Any]) -> Any:
    """What a request asks for; sends messages on the way."""
    match request:
        case Describe(gpu):
            from bnpbench.measure.environment import describe

            return describe(gpu)
        case Preflight():
            from bnpbench.execution.preflight import preflight

            return preflight(request)
        case Smoke():
            from bnpbench.execution.smoke import smoke

            return smoke(request, channel.send)
        case Profile():
            from bnpbench.profiling.phases import profile

            return profile(request)
        case RunBlock():
            if request.cells[0].settings.devices > 1:
                from bnpbench.execution.ranks import run_on_ranks

                return run_on_ranks(request, channel.send)
            from bnpbench.execution.block import run_block

            return run_block(request, channel.send)


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
    sys.stdout, sys.stderr = (
        unfailing(sys.stdout),
        unfailing(sys.stderr),
    )  # what a plugin prints to a full disk ends no cell
    faulthandler.enable(file=2)
    threading.Thread(target=watch_parent, daemon=True).start()


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
