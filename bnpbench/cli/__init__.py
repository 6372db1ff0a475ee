"""The command line: one file a command; errors become messages and exit codes here and nowhere else."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, NoReturn

from bnpbench.cli.app import app
from bnpbench.errors import BnpbenchError
from bnpbench.execution import interruption

BUG = 70


def main() -> NoReturn:
    """The console script ``bnpbench``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for terminals and names that are not UTF-8
    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    if "bnpbench.execution.children" in sys.modules:
        from bnpbench.execution.children import stop_forkserver

        stop_forkserver()
    os._exit(code)  # the interpreter would take seconds to free pandas and its like, object by object


def run(arguments: list[str]) -> int:
    """Run a command line and give its exit code."""
    interruption.listen()
    debug = "--debug" in arguments
    try:
        code = app(arguments, standalone_mode=False)
        interruption.check()  # what was raised inside a callback is lost
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BnpbenchError as error:
        return _fail(error.exit_code, str(error), debug)
    except interruption.Stopped as stop:
        return _fail(stop.code, "stopped; what was finished is kept, the same command goes on from there", debug)
    except BrokenPipeError:  # the reader of stdout has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the command line
            return _usage(error)
        told = f"a bug in bnpbench: {type(error).__name__}: {error}; `bnpbench --debug COMMAND ...` shows where"
        return _fail(BUG, told, debug)


def _fail(code: int, message: str, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    print(f"bnpbench: {printable(message)}", file=sys.stderr)
    return code


def _usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "bnpbench"
    print(f"bnpbench: {printable(error.format_message())}\ntry: {command} --help", file=sys.stderr)
    return 2


def printable(text: str) -> str:
    """Text as a terminal may show it: control characters become escapes, line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
