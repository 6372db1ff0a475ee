"""Profiles of single cells, from the parent's side."""

from __future__ import annotations

import os
import pickle
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bnpbench.display import Count, Display, State
from bnpbench.errors import BnpbenchError
from bnpbench.execution.children import ask, interpreter, start_forkserver
from bnpbench.execution.executor import usable_cores
from bnpbench.execution.messages import Describe, Preflight, Profile, Profiled
from bnpbench.execution.options import check_cuda_only, check_data, check_device, device_index, resolve_device
from bnpbench.execution.progress import stages
from bnpbench.files import private_folder
from bnpbench.report.document import Chapter, Entry, Place, Section, Table
from bnpbench.results.store import folder_name
from bnpbench.suite import Cell, Suite
from bnpbench.text import dash, fixed

SHOWN = 15  # operators in the table
RATE = 50  # samples a second: each stops the process, with native frames for milliseconds
SECONDS = 8.0  # of steps under the sampling profiler
PATIENCE = 120.0  # seconds for one graph: Python and torch start slowly under the profiler
FORMATS = {"flamegraph": "svg", "speedscope": "speedscope.json"}
REMEDY = (
    "run as root, give the container the capability SYS_PTRACE, or set kernel.yama.ptrace_scope to 0 or 1; the "
    "process is started by py-spy, so 1 is enough on Linux"
)


def choose(suite: Suite, only: Sequence[str], methods: Sequence[str], device: str, shown: Display) -> list[Cell]:
    """The cells to profile: one, or one for each of ``methods``, of the first seed; ``shown`` shows what goes on.

    Where several are of the kind that a method names, it is the one with that label.

    Raises:
        BnpbenchError: the device or the data are not there, or the filters leave several cells.
    """
    check_device(device, f"--device {device}")
    shown.show(State(suite.name, "imports"))
    start_forkserver()
    environment = ask(Describe(device_index(device) or 0))
    kind = resolve_device(device, environment.hardware.gpus, environment.details.cuda_unusable)
    threads = len(usable_cores(environment))
    found: list[Cell] = []
    for filters, method in [([*only, f"method={method}"], method) for method in methods] or [([*only], "")]:
        matching = suite.cells(device=kind, threads=threads, only=filters, seeds=1)
        cells = [cell for cell in matching if cell.label == method] or list(matching)  # of a kind the one called so
        if len(cells) > 1:
            one = next((c for c in cells if c.label == c.settings.method.kind), cells[0])
            several = {
                f"method={one.label}": len({c.label for c in cells}),
                f"batch_size={one.settings.batch_size}": len({c.settings.batch_size for c in cells}),
                f"optimizer.lr={one.settings.optimizer.lr:g}": len({c.settings.optimizer.lr for c in cells}),
            }
            narrow = " ".join(f"--only {shlex.quote(text)}" for text, count in several.items() if count > 1)
            told = "; ".join(f"{c.label} at {c.settings.batch_size}, lr {c.settings.optimizer.lr:g}" for c in cells[:8])
            raise BnpbenchError(
                f"profile looks at one cell, and {len(cells)} match: {told}; narrow them down"
                + (f", such as with {narrow}" if narrow else " with --only")
            )
        found += cells
    capability = environment.details.gpu.capability if environment.details.gpu else None
    eager = [cell.settings.model_copy(update={"engine": "eager"}) for cell in found]  # whatever theirs is
    check_cuda_only(eager, capability)
    if any(cell.settings.devices > 1 for cell in found):
        raise BnpbenchError("profile looks at the step of one device; narrow the cells down with --only devices=1")
    return found


def profile(
    suite: Suite, cells: Sequence[Cell], steps: int, data_dir: Path | None, gpu: int, folder: Path, shown: Display
) -> tuple[Chapter, list[Path], list[str]]:
    """Tables of phases and operators side by side, the traces, and what could not be seen; ``shown`` shows progress.

    Raises:
        BnpbenchError: a cell that cannot be run.
    """
    _check(suite, cells, data_dir, shown)
    found: dict[str, Profiled] = {}
    traces = []
    count = Count(shown, suite.name, "cells")
    for place, cell in enumerate(cells):
        count(place, len(cells), f"{cell.label} N={cell.settings.batch_size}: {steps} steps under the profiler")
        traces.append(folder / f"{folder_name(cell.label)}-{cell.settings.batch_size}.trace.json")
        request = Profile(cell, steps, data_dir, gpu, traces[-1].absolute())
        found[cell.label] = ask(
            request, suite.plugins, folder.absolute() / "profile.log"
        )  # the profiler's own messages
    title = f"Profile of {suite.name}: " + ", ".join(f"{c.label} at {c.settings.batch_size}" for c in cells)
    note = f"Milliseconds a step, means over {steps} eager steps under torch's profiler, which itself takes time."
    tables = (_phases(found, note), _operators(found))
    untold = [f"{label}: no time on the device: {p.untold}" for label, p in found.items() if p.untold is not None]
    return Chapter(suite.name, "", (Section(title, tables=tables, lines=tuple(untold), level=1),)), traces, untold


def sample(
    suite: Suite, cell: Cell, data_dir: Path | None, gpu: int, folder: Path, shown: Display
) -> tuple[list[Path], str | None]:
    """Flame graphs by py-spy: the files, and why some are missing, if any.

    Args:
        shown: what happens, as each graph takes its time.

    Raises:
        BnpbenchError: a cell that cannot be run.
    """
    tool = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if tool is None:
        return [], "py-spy is not installed; pip install py-spy"
    _check(suite, [cell], data_dir, shown)
    made, reason = list[Path](), None
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=private_folder()) as private:
        request, end = Path(private) / "request", Path(private) / "end"
        pickled = pickle.dumps(Profile(cell, 50, data_dir, gpu, folder))
        request.write_bytes(pickle.dumps((suite.plugins, pickled)))
        work = [sys.executable, "-m", "bnpbench.profiling.sampled", str(request), str(SECONDS), str(end)]
        for format, ending in FORMATS.items():  # noqa: A001 - py-spy's word
            path = folder / f"{folder_name(cell.label)}-{cell.settings.batch_size}.{ending}"
            record = [tool, "record", "--format", format, "--rate", str(RATE), "--output", str(path)]
            native = [[*record, "--native", "--", *work]] if sys.platform == "linux" else []
            for command in [*native, [*record, "--", *work]]:
                frames = "with native frames" if "--native" in command else "Python's frames"
                limit = f"{SECONDS:g} s of steps, at most {PATIENCE:g} s with the start"
                shown.show(State(suite.name, f"{cell.label}: {format}, {frames}: {limit}", begin=shown.now()))
                path.unlink(missing_ok=True)  # of an earlier command, or a stranger's link
                code, told = _within(PATIENCE, command)
                if code == 0 and path.is_file() and path.stat().st_size:
                    if not end.exists():  # a graph of the start alone
                        path.unlink()
                        return made, f"the steps could not be run ({told})"
                    made.append(path)
                    break
                reason = f"py-spy could not look at the process ({told}); {REMEDY}"
    return made, None if len(made) == len(FORMATS) else reason


def _within(seconds: float, command: Sequence[str]) -> tuple[int | None, str]:
    """The exit code of a command and the last line it said; it and its children end after so many seconds."""
    with subprocess.Popen(
        command,
        env=os.environ | interpreter(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            _, said = process.communicate(timeout=seconds)
            return process.returncode, (said.strip().splitlines() or ["no reason given"])[-1]
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return None, f"it did not end within {seconds:g} s"


def _check(suite: Suite, cells: Sequence[Cell], data_dir: Path | None, shown: Display) -> None:
    """Raises BnpbenchError for a cell that cannot be run."""
    check_data({type(cell.settings.dataset) for cell in cells}, data_dir, offline=False)
    found = ask(Preflight(tuple(cells), data_dir, False), suite.plugins, told=stages(shown, suite.name))
    for cell in cells:
        if reason := found[cell.key].not_applicable:
            raise BnpbenchError(f"{cell.label} at batch size {cell.settings.batch_size} is not applicable: {reason}")
        if (reason := found[cell.key].uncounted) and not cell.settings.plugins:  # which may lack meta tensors alone
            raise BnpbenchError(
                f"{cell.label} at batch size {cell.settings.batch_size}: no step can be built: {reason}"
            )


def _phases(found: dict[str, Profiled], note: str) -> Table:
    device = any(profiled.step.device is not None for profiled in found.values())
    columns, rows = ["phase"], list[tuple[str | Entry, ...]]()
    for label in found:
        columns += [label, "share", *(["on the device"] if device else [])]
    names = list(next(iter(found.values())).phases)
    for name in [*names, "between phases", "step"]:
        row: list[str | Entry] = [name]
        for label, profiled in found.items():
            inside = sum(time.host for time in profiled.phases.values())
            rest = profiled.step.host - inside
            time = profiled.phases.get(name, profiled.step)
            host = rest if name == "between phases" else time.host
            place = Place("time by phase", method=label)
            row += [
                place.entry(f"{name}, ms a step", host, shown=fixed(host, 4)),
                f"{host / profiled.step.host:.1%}",
            ]
            if device:
                row.append(dash() if time.device is None or name == "between phases" else fixed(time.device, 4))
        rows.append(tuple(row))
    launched = [f"{label}: {p.kernels:.1f} kernels a step" for label, p in found.items() if p.kernels is not None]
    joined = [f"{label}: the update of the weights is part of precondition" for label, p in found.items() if p.joined]
    return Table("Time by phase", tuple(columns), tuple(rows), (note, *launched, *joined))


def _operators(found: dict[str, Profiled]) -> Table:
    total: dict[str, float] = {}
    for profiled in found.values():
        for name, (time, _) in profiled.operators.items():
            total[name] = total.get(name, 0.0) + time.host + (time.device or 0.0)
    shown = sorted(total, key=lambda name: total[name], reverse=True)[:SHOWN]
    columns = ["operator", *(heading for label in found for heading in (f"{label}, ms", "calls"))]
    device = any(profiled.kernels is not None for profiled in found.values())
    rows = list[tuple[str | Entry, ...]]()
    for name in shown:
        row: list[str | Entry] = [name]
        for label, profiled in found.items():
            if name not in profiled.operators:
                row += [dash(), dash()]
                continue
            time, calls = profiled.operators[name]
            own = time.host if time.device is None else time.device
            place = Place("time by operator", method=label)
            row += [place.entry(f"{name}, ms a step", own, shown=fixed(own, 4)), f"{calls:g}"]
        rows.append(tuple(row))
    note = f"Time of its own a step, {'on the device' if device else 'on the host'}; the {len(shown)} dearest."
    return Table("Time by operator", tuple(columns), tuple(rows), (note,))
