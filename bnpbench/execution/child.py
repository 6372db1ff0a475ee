"""The child's side: prepares the process and answers one request."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

from bnpbench.errors import BnpbenchError, ResultsError, refused
from bnpbench.execution.messages import Done, Preflight, Probe, Profile, Refused, RunBlock
from bnpbench.streams import unfailing
from bnpbench.suite import PluginFile, load_plugins

FAULT = 70  # exit code of a child that met an error of a kind that nobody foresaw


def serve(channel: connection.Connection, pickled: bytes, plugins: tuple[PluginFile, ...], log: Path | None) -> None:
    """Answer the pickled request on ``channel``; the last message is ``Done`` or ``Refused``.

    The request may hold options that a plugin defines, so the plugins are loaded before it is read.

    What the machine refuses is an answer too, but to a block: that costs its cells, as any other error does, which is
    printed to the log and ends the process with the exit code FAULT.
    """
    request = None
    try:
        _prepare(log)
        if plugins:
            load(plugins)
        request = pickle.loads(pickled)
        channel.send(Done(_answer(channel, request)))
    except BnpbenchError as error:
        channel.send(Refused(error))
    except BaseException as error:
        traceback.print_exc()
        refusal = None if isinstance(request, RunBlock) else refused(error)
        if refusal is not None:
            channel.send(Refused(refusal))
        os._exit(FAULT)


def load(plugins: tuple[PluginFile, ...]) -> None:
    """Make a suite's plugins known in this process."""
    from bnpbench.execution.plugins import install

    load_plugins(plugins)
    install()


def _answer(channel: connection.Connection, request: Any) -> Any:
    match request:
        case Probe(gpu):
            from bnpbench.measure.environment import describe

            return describe(gpu)
        case Preflight():
            from bnpbench.execution.preflight import preflight

            return preflight(request)
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
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
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


def watch_parent(tidy_up: Callable[[], None] = lambda: None) -> None:
    """End with the parent, however it ended: nobody would read the rows."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        tidy_up()
        os._exit(1)
