"""Every command with standard streams that are closed, full, or whose reader is gone.

    python tests/benchmarks/streams.py [COMMAND...]        all commands, or those whose name begins so

Each command is run as it should be first, on a suite that is well and on one that fails. Then with each disturbance:
the exit code must be the same, except that a result that could not be written to a full stdout makes a 0 a 2; what is
written to disk must be the same; and what arrives on the streams that are not disturbed must be the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bnpbench import read_results
from bnpbench.errors import BnpbenchError
from tests.support.command import SUITE, called, environment

PLUGIN = """
from typing import Literal

from bnpbench import MethodPlugin


class Faulty(MethodPlugin):
    kind: Literal["faulty"]

    def layer(self, features, spatial_dims, site):
        raise ArithmeticError("no such number")
"""
CLAIM = """
[[claim]]
says = "so"
left = { method = "bnp" }
metric = "test_accuracy"
value = { at_least = %s }
"""
WELL = SUITE + CLAIM % 0.0
FAILING = WELL.replace("[train]", 'plugins = ["mine.py"]\n[train]').replace('"bnp"]', '"bnp", "faulty"]')
BAD = SUITE.replace("epochs", "epoch")


@dataclass(frozen=True)
class Command:
    """A command line, and what there is in its folder before.

    Attributes:
        code: its documented exit code.
        written: whether its result stands on stdout.
    """

    name: str
    arguments: Sequence[str]
    code: int
    written: bool = True


COMMANDS = [
    Command("run", ("run", "well.toml", "--out", "new"), 0),
    Command("run a claim", ("run", "claims.toml", "--out", "new", "--fail-on-claims"), 1),
    Command("run failing", ("run", "failing.toml", "--out", "new", "--allow-plugins"), 3),
    Command("run bad", ("run", "bad.toml", "--out", "new"), 2, written=False),
    Command("report", ("report", "well"), 0),
    Command("report html", ("report", "well", "--format", "html", "--output", "page.html"), 0, written=False),
    Command("report a claim", ("report", "claims", "--fail-on-claims"), 1),
    Command("report nothing", ("report", "empty"), 4, written=False),
    Command("compare", ("compare", "well", "well"), 0),
    Command("compare dearer", ("compare", "well", "dearer"), 1),
    Command("check", ("check", "well.toml"), 0),
    Command("check bad", ("check", "bad.toml"), 2, written=False),
    Command("new", ("new", "mine"), 0),
    Command("new again", ("new", "well"), 2, written=False),
    Command("data", ("data", "--data-dir", "nothing"), 0),
    Command("data get", ("data", "get", "digits"), 0),
    Command("data get nothing", ("data", "get", "nosuch"), 2, written=False),
    Command("env", ("env",), 0),
    Command("compact", ("compact", "well"), 0),
    Command("compact nothing", ("compact", "empty"), 4, written=False),
    Command("verify", ("verify", "theorem-1", "--trials", "1"), 0),
    Command("verify nothing", ("verify", "nosuch"), 2, written=False),
    Command("profile", ("profile", "well.toml", "--only", "method=bnp", "--steps", "1"), 0),
    Command("profile several", ("profile", "well.toml"), 2, written=False),
    Command("help", ("--help",), 0),
    Command("usage", ("nosuch",), 2, written=False),
]
CLOSED, FULL, EARLY = "closed", "full", "early"
DISTURBANCES: list[dict[int, str]] = [
    *({number: how} for number in (0, 1, 2) for how in (CLOSED, FULL)),
    *({number: EARLY} for number in (1, 2)),
    dict.fromkeys((1, 2), EARLY),
    dict.fromkeys((1, 2), FULL),
    dict.fromkeys((0, 1, 2), CLOSED),
]


@dataclass(frozen=True)
class Outcome:
    """What a command ended with: exit code, stdout, stderr, and what it left on disk."""

    code: int
    output: str
    errors: str
    left: dict[str, object]


def prepare(folder: Path) -> None:
    """Suites, and results of those that are well, fail a claim, and have become dearer."""
    for name, text in {
        "well": WELL,
        "claims": SUITE.replace('"tiny"', '"claims"') + CLAIM % 2.0,
        "failing": FAILING,
        "bad": BAD,
    }.items():
        (folder / f"{name}.toml").write_text(text)
    (folder / "mine.py").write_text(PLUGIN)
    (folder / "empty").mkdir()
    for name in ("well", "claims"):
        done = called("run", f"{name}.toml", "--out", name, "--quiet", cwd=folder)
        assert done.returncode == 0, done.stderr
    shutil.copytree(folder / "well", folder / "dearer")
    _make_dearer(folder / "dearer")


def _make_dearer(results: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in results.glob("*/*/cells/*.parquet"):
        table = pq.read_table(path)
        place = table.schema.get_field_index("flops_model")
        dearer = pa.array([count + 1 for count in table["flops_model"].to_pylist()], table.schema.field(place).type)
        pq.write_table(table.set_column(place, table.schema.field(place), dearer), path, compression="none")


def trial(prepared: Path, command: Command, disturbance: dict[int, str]) -> Outcome:
    """Run a command in a copy of the prepared folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "work"
        shutil.copytree(prepared, folder)
        return _run(folder, command.arguments, disturbance)


def _run(folder: Path, arguments: Sequence[str], disturbance: dict[int, str]) -> Outcome:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, open(os.devnull) as nothing:
        streams = {0: nothing.fileno(), 1: output.fileno(), 2: errors.fileno()}
        opened = [_opened(how) for how in disturbance.values()]
        streams |= dict(zip(disturbance, opened, strict=True))
        code = subprocess.run(
            [sys.executable, "-m", "bnpbench", *arguments],
            cwd=folder,
            env=environment(None),
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            timeout=300,
            check=False,
            preexec_fn=_closing([number for number, how in disturbance.items() if how == CLOSED]),
        ).returncode
        for descriptor in opened:
            os.close(descriptor)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode())
    return Outcome(code, *texts, _left(folder))


def _opened(how: str) -> int:
    if how == EARLY:
        far, near = os.pipe()
        os.close(far)
        return near
    return os.open("/dev/full" if how == FULL else os.devnull, os.O_RDWR)


def _closing(numbers: Sequence[int]) -> Callable[[], None]:
    def close() -> None:
        for number in numbers:
            os.close(number)

    return close


def _left(folder: Path) -> dict[str, object]:
    """The names of the files, and the states of the cells in the results."""
    found: dict[str, object] = {
        "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    }
    for results in ("new", "well"):
        try:
            read = read_results(folder / results)
        except BnpbenchError:
            continue
        found[results] = (sorted(zip(read.cells.key, read.cells.status, strict=True)), len(read.epochs))
        assert not read.damaged
    return found


def faults(command: Command, undisturbed: Outcome, disturbance: dict[int, str], outcome: Outcome) -> list[str]:
    """What is not as it should be."""
    found = []
    lost = disturbance.get(1) == FULL and command.written
    if outcome.code != (wanted := command.code or 2 * lost):  # an answer that was found stays the answer
        found.append(f"exit code {outcome.code}, not {wanted}")
    if outcome.left != undisturbed.left:
        found.append("something else is on the disk")
    if 1 not in disturbance and _timeless(outcome.output) != _timeless(undisturbed.output):
        found.append("something else on stdout")
    if 2 not in disturbance and not lost and _timeless(outcome.errors) != _timeless(undisturbed.errors):
        found.append(f"something else on stderr: {outcome.errors[-300:]!r}")
    if lost and 2 not in disturbance and "stdout: cannot be written" not in outcome.errors:
        found.append("a lost result is not told")
    return found


def _timeless(text: str) -> list[str]:
    """The lines without what is measured anew: the first words of tables and messages stay."""
    return [re.sub(r"[-\d.,:±–\[\]%∞ ]+", " ", line)[:40] for line in text.splitlines() if not line.startswith("|")]


def main(names: Sequence[str]) -> int:
    """Try all; 1 if anything is not as it should be."""
    wrong = tried = 0
    with tempfile.TemporaryDirectory() as name:
        prepared = Path(name)
        prepare(prepared)
        for command in COMMANDS:
            if names and not any(command.name.startswith(name) for name in names):
                continue
            undisturbed = trial(prepared, command, {})
            if undisturbed.code != command.code:
                wrong += 1
                print(f"WRONG {command.name}, undisturbed: exit code {undisturbed.code}, not {command.code}")
            codes = []
            for disturbance in DISTURBANCES:
                outcome = trial(prepared, command, disturbance)
                found = faults(command, undisturbed, disturbance, outcome)
                told = ", ".join(f"{('stdin', 'stdout', 'stderr')[n]} {how}" for n, how in disturbance.items())
                codes.append(f"{told}: {outcome.code}")
                tried, wrong = tried + 1, wrong + bool(found)
                for fault in found:
                    print(f"WRONG {command.name}, {told}: {fault}", flush=True)
            print(f"{command.name} (documented: {command.code}): {'; '.join(codes)}", flush=True)
    print(f"{tried} disturbed command lines, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
