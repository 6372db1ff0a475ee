"""The command line: one file a command; errors become messages and exit codes here and nowhere else."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn

from bnpbench.cli.app import app
from bnpbench.errors import BnpbenchError, refused
from bnpbench.execution import interruption
from bnpbench.streams import open_missing, tell, unfailing

BUG = 70
_WORDS = {
    r"Input should be greater than or equal to": "must be at least",
    r"Input should be less than or equal to": "must be at most",
    r"Input should be greater than": "must be above",
    r"Input should be less than": "must be below",
    r"Input should be a valid integer(, .*)?$": "must be a whole number",
    r"Input should be a valid number(, .*)?$": "must be a number",
}
"""What the command-line library says of a value, and how errors of suites say it."""


def main() -> NoReturn:
    """The console script ``bnpbench``."""
    open_missing()
    sys.stderr = unfailing(sys.stderr)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for terminals and names that are not UTF-8
    code = run(sys.argv[1:])
    if "bnpbench.execution.children" in sys.modules:
        from bnpbench.execution.children import stop_forkserver

        stop_forkserver()
    os._exit(code)  # the interpreter would take seconds to free pandas and its like, object by object


def run(arguments: list[str]) -> int:
    """Run a command line and give its exit code.

    What it prints goes to stdout at its end: a reader that is gone, or a full disk, changes no answer.
    """
    interruption.listen()
    debug = "--debug" in arguments
    result = io.StringIO()
    code = _guarded(partial(_answer, arguments, result), debug)
    lost = _guarded(partial(_deliver, result.getvalue()), debug)
    return lost if lost in interruption.CODES.values() else code or lost


def _answer(arguments: list[str], result: io.StringIO) -> int:
    with contextlib.redirect_stdout(result):
        code = app(arguments, standalone_mode=False)
        interruption.check()  # what was raised inside a callback is lost
    return code if isinstance(code, int) else 0


def _deliver(text: str) -> int:
    try:
        if text:  # else Python would write nothing, and a full disk refuses that, too
            sys.stdout.write(text)
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of stdout has seen enough
        pass
    except OSError as error:
        raise BnpbenchError(f"stdout: cannot be written ({error.strerror}); make room, or use another place") from error
    return 0


def _guarded(work: Callable[[], int], debug: bool) -> int:
    """The code that the work gives, or that of the error in which it ends."""
    try:
        return work()
    except BnpbenchError as error:
        return _fail(error.exit_code, str(error), debug)
    except interruption.Stopped as stop:
        return _fail(
            stop.code,
            "stopped: what was finished is kept. Run the same command again and it goes on from there.",
            debug,
        )
    except SystemExit as end:  # of the shell's completion
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the command line
            return _usage(error)
        if (refusal := refused(error)) is not None:
            return _fail(refusal.exit_code, str(refusal), debug)
        told = f"a bug in bnpbench: {type(error).__name__}: {error}; `bnpbench --debug COMMAND ...` shows where"
        return _fail(BUG, told, debug)


def _fail(code: int, message: str, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    tell(f"bnpbench: {printable(message)}")
    return code


def _usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "bnpbench"
    tell(f"bnpbench: {printable(_told(error))}\ntry: {command} --help")
    return 2


def _told(error: Any) -> str:
    """What is wrong with a command line; of a word that is none of several, with the nearest of these."""
    message = (
        " ".join(error.format_message().split()).replace("Value error, ", "").replace(". Choose from:", ": give one of")
    )
    for theirs, ours in _WORDS.items():
        message = re.sub(theirs, ours, message)
    if (found := re.search(r"'([^']*)' is not one of (.*?)\.?$", message)) is None:
        return message
    choices = re.findall(r"'([^']*)'", found[2])
    near = get_close_matches(found[1], choices, 1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{message[: found.start()]}{found[1]!r} is not one of {', '.join(choices)}{hint}"


def printable(text: str) -> str:
    """Text as a terminal may show it: control characters become escapes, line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
