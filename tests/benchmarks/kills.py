"""Kills command lines at random moments, goes on, and compares what is there at the end with an undisturbed run.

    python tests/benchmarks/kills.py FOLDER [--kills 100] [--seed 0] [--only CAMPAIGN]... [--every-call]

A campaign is a list of command lines over one folder of results. Each is started again and again until it ends with
exit code 0; meanwhile its process, one of those that measure, or all of them get SIGKILL, SIGTERM or SIGINT, most often
after it has begun to write. After every blow the results are read: what was finished stays finished. At the end they
must be those of the same commands undisturbed, and no file may be left that only a run at work has. With
``--every-call`` a run over finished results dies before the first, second, third ... file that it renames or removes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import psutil

from bnpbench import Results, read_results
from bnpbench.results import FINISHED
from tests.support.processes import below
from tests.support.timeless import timeless

PATIENCE = 240.0  # seconds until a command line that does not end is a fault
SUITE = """
name = "kills"
[train]
dataset = {{ kind = "synthetic", shape = [8], classes = 3, train = {examples}, test = 30 }}
network = {{ kind = "fc", hidden = [8] }}
optimizer = {{ kind = "sgd", lr = 0.1, momentum = 0.9 }}
batch_size = {batch_size}
epochs = {epochs}
threads = 1
device = "cpu"
{train}
[sweep]
method = ["vanilla", "bn", "bnp"]
seed = [1, 2]
{rest}
"""
IN_TURN = '[measure]\ninterleave = ["method"]\n[probe]\nlayer = "hidden1"\nneuron = 0\nevery = 2\n'


@dataclass(frozen=True)
class Campaign:
    """Command lines, one after the other; those of one tuple side by side."""

    name: str
    suite: str
    stages: Sequence[tuple[str, ...]]


def text(examples: int = 60, batch_size: int = 20, epochs: int = 3, train: str = "", rest: str = "") -> str:
    return SUITE.format(examples=examples, batch_size=batch_size, epochs=epochs, train=train, rest=rest)


CHOOSING = 'optimizer.lr = [0.1, 0.3]\n[select]\nover = "optimizer.lr"\n'
LONG = {"examples": 1500, "batch_size": 1, "epochs": 4}  # seconds a cell: its state is kept meanwhile
CAMPAIGNS = (
    Campaign("interleaved", text(rest=IN_TURN), [("run",)]),
    Campaign("select", text(train="validation = 0.2", rest=CHOOSING), [("run",)]),
    Campaign("ranks", text(train="devices = 2").replace('["vanilla", "bn", "bnp"]', '["bnp"]'), [("run",)]),
    Campaign("jobs", text(), [("run --jobs 2",)]),
    Campaign("shards", text(), [("run --shard 1/2", "run --shard 2/2", "compact"), ("compact",), ("run",)]),
    Campaign("fresh", text(rest=IN_TURN), [("run",), ("run --fresh",), ("run --fresh",)]),
    Campaign(
        "compaction",
        text(rest=IN_TURN),
        [("run --only seed=1",), ("compact",), ("run", "compact"), ("run --fresh", "compact"), ("compact",)],
    ),
    Campaign("beside", text(rest=IN_TURN), [("run --only seed=1",), ("run", "compact")]),
    Campaign("long", text(**LONG).replace('["vanilla", "bn", "bnp"]', '["bnp"]'), [("run",), ("run --fresh",)]),
)


@dataclass
class Tally:
    """What came of it."""

    blows: Counter[str] = field(default_factory=Counter)
    campaigns: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        blows = ", ".join(f"{count} {what}" for what, count in sorted(self.blows.items()))
        over = ", ".join(f"{count} {name}" for name, count in self.campaigns.items())
        return f"{self.blows.total()} blows ({blows}) over {over}: {len(self.faults)} faults"


class Folder:
    """One campaign's results, and what of them was seen to be finished."""

    def __init__(self, campaign: Campaign, folder: Path) -> None:
        self.campaign, self.out = campaign, folder / "out"
        folder.mkdir(parents=True)
        self.suite = folder / "kills.toml"
        self.suite.write_text(campaign.suite)
        self.temporary = folder / "t"
        self.temporary.mkdir()
        self.finished: set[str] = set()

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """A command line in a process group of its own."""
        name, *options = command.split()
        if name == "compact":
            self.out.mkdir(exist_ok=True)
        places = [str(self.out)] if name == "compact" else [str(self.suite), "--out", str(self.out), "--quiet"]
        return self.started([sys.executable, "-m", "bnpbench", name, *places, *options])

    def started(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
        )

    def read(self) -> Results | None:
        return read_results(self.out) if list(self.out.glob("*/*/cells")) else None

    def look(self, blow: str, tally: Tally, *, may_fail: bool) -> None:
        """What was finished is still there, unless a cell was measured again and failed."""
        results = self.read()
        if results is None:
            return
        cells = results.cells
        if duplicates := cells.key[cells.key.duplicated()].tolist():
            tally.faults.append(f"{self.campaign.name}: doubled after {blow}: {duplicates}")
        now = set(cells.key[cells.status.isin(FINISHED)])
        failed = set(cells.key) - now
        if lost := self.finished - now - (failed if may_fail else set()):
            tally.faults.append(f"{self.campaign.name}: lost after {blow}: {sorted(lost)}")
        self.finished = now
        tally.faults += [
            f"{self.campaign.name}: damaged after {blow}: {path}: {reason}"
            for path, reason in results.damaged
            if "unfinished" not in reason
        ]


def inject(folder: Path, kills: int, seed: int = 0, only: Sequence[str] = ()) -> Tally:
    """Strike until ``kills`` blows have landed, campaign after campaign, each finished and compared."""
    draws, tally = random.Random(seed), Tally()
    chosen = [campaign for campaign in CAMPAIGNS if not only or campaign.name in only]
    each = -(-kills // len(chosen))
    whole: dict[str, tuple[Folder, list[float]]] = {}
    while tally.blows.total() < kills:
        campaign = chosen[tally.campaigns.total() % len(chosen)]
        if campaign.name not in whole:
            calm = Folder(campaign, folder / campaign.name)
            whole[campaign.name] = calm, [finish(calm, stage, tally) for stage in campaign.stages]
        struck = Folder(campaign, folder / f"{campaign.name}-{tally.campaigns.total()}")
        wanted = min(each, kills - tally.blows.total())
        begin, stages = tally.blows.total(), campaign.stages
        for place, (stage, seconds) in enumerate(zip(stages, whole[campaign.name][1], strict=True), 1):
            for _ in range(3 * wanted):  # some come too late
                if tally.blows.total() < begin + wanted * place // len(stages):
                    strike(struck, stage, seconds, draws, tally)
            finish(struck, stage, tally)
        tally.campaigns[campaign.name] += 1
        compare(struck, whole[campaign.name][0], tally)
        print(f"{tally}", *tally.faults, sep="\n", flush=True)
    return tally


def finish(folder: Folder, stage: Sequence[str], tally: Tally) -> float:
    """Run a stage's commands until each ends well; the seconds that these took."""
    return sum(_finish(folder, command, tally) for command in stage)


def _finish(folder: Folder, command: str, tally: Tally) -> float:
    for _ in range(4):  # a cell that was struck is measured again by the second
        begin = time.monotonic()
        process = folder.start(command)
        _, errors = process.communicate(timeout=PATIENCE)
        if process.returncode == 0:
            return time.monotonic() - begin
    tally.faults.append(f"{folder.campaign.name}: {command} ends with {process.returncode}: {errors.decode()[-500:]}")
    return 0.0


def strike(folder: Folder, stage: Sequence[str], seconds: float, draws: random.Random, tally: Tally) -> None:
    """Start the stage's commands and land one blow on the first of them, or on all."""
    begun = time.time()
    processes = [folder.start(command) for command in stage]
    victim = draws.choice(processes)
    if draws.random() < 0.8:  # else while it starts
        while victim.poll() is None and not written(folder.out, begun):
            time.sleep(0.002)
        seconds = draws.choice([0.05, 0.3, 1.0, seconds / 2])
    time.sleep(draws.uniform(0, seconds))
    number = draws.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    measuring = [*below(victim.pid, 2), *below(victim.pid, 3)]
    whom = draws.choice(["parent", "all", "child"] if measuring else ["parent", "all"])
    if whom == "child":
        number = signal.SIGKILL
    landed = victim.poll() is None
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        if whom == "parent":
            victim.send_signal(number)
        elif whom == "all":
            os.killpg(victim.pid, number)
        else:
            draws.choice(measuring).send_signal(number)
    for process in processes:
        _, errors = process.communicate(timeout=PATIENCE)
        expected = {0, 3, *([-number, 130 if number == signal.SIGINT else 143] if process is victim else [])}
        not_begun = any(words in errors for words in (b"no results in here", b"Preflight was killed by SIGKILL"))
        if process.returncode not in expected and not not_begun:
            tally.faults.append(f"{folder.campaign.name}: exit code {process.returncode}: {errors.decode()[-500:]}")
    psutil.wait_procs(measuring, timeout=PATIENCE)
    blow = f"{number.name} of {whom}"
    tally.blows[blow] += landed
    folder.look(blow, tally, may_fail=whom == "child" or (whom == "all" and number == signal.SIGTERM))


def written(out: Path, since: float) -> bool:
    """Whether anything under the folder has changed since then."""
    for path in out.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime > since:
                return True
    return False


def compare(struck: Folder, calm: Folder, tally: Tally) -> None:
    """A fault for every difference, and for every file that is left."""
    left = [*litter(struck.out), *sorted(path.name for path in struck.temporary.iterdir())]
    found = [*differences(struck.out, calm.out), *(f"left behind: {name}" for name in left)]
    tally.faults += [f"{struck.campaign.name}: {fault}" for fault in found]


def differences(out: Path, undisturbed: Path) -> list[str]:
    """How the results differ in what two runs share."""
    ours, theirs = read_results(out), read_results(undisturbed)
    found = [f"damaged: {path}: {reason}" for path, reason in ours.damaged]
    mine, other = set(ours.cells.key), set(theirs.cells.key)
    found += [f"lost: {key}" for key in sorted(other - mine)] + [f"too much: {key}" for key in sorted(mine - other)]
    for kind in ("cells", "epochs", "steps"):
        a, b = getattr(ours, kind), getattr(theirs, kind)
        by = [column for column in ("key", "epoch", "step", "preconditioner") if column in a.columns]
        if a.duplicated(by).any():
            found.append(f"doubled rows of {kind}")
        unlike = [key for key in sorted(mine & other) if not rows(a, key, by).equals(rows(b, key, by))]
        found += [f"{kind} of {key} are not those of the undisturbed run" for key in unlike]
    return found


def rows(table: pd.DataFrame, key: str, by: list[str]) -> pd.DataFrame:
    """A cell's rows but for what a cell that ran again alone, or went on from a checkpoint, may say otherwise."""
    mine = table[table.key == key].sort_values(by).reset_index(drop=True)
    return timeless(mine, "turn", "log", "commit", "dirty", "message")


def litter(out: Path) -> list[str]:
    """What only a run at work has."""
    return sorted(
        str(path.relative_to(out))
        for path in out.rglob("*")
        if path.name.startswith(".")
        or path.suffix in (".tmp", ".lock", ".pt")
        or path.name.endswith(".partial.parquet")
        or path.name == "commit"
    )


DYING = """
import os, signal, sys, tempfile
tempfile.gettempdir()  # Python tries the folder with a file of its own, once
left = [int(sys.argv.pop(1))]
def dying(real):
    def call(*arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            os.killpg(0, signal.SIGKILL)
        return real(*arguments, **options)
    return call
for name in ("rename", "replace", "unlink", "remove", "rmdir"):
    setattr(os, name, dying(getattr(os, name)))
from bnpbench.cli import main
main()
"""


def every_call(folder: Path) -> Tally:
    """A run over finished results dies before each file that its first process renames or removes."""
    tally = Tally()
    campaign = Campaign("every call", text(rest=IN_TURN).replace("seed = [1, 2]", "seed = [1]"), [("run",)])
    calm, struck = Folder(campaign, folder / "calm"), Folder(campaign, folder / "struck")
    for one in (calm, struck):
        _finish(one, "run", tally)
    struck.look("nothing", tally, may_fail=False)
    code, place = -1, 0
    while code != 0:
        options = ["--out", str(struck.out), "--quiet", "--fresh"]
        process = struck.started([sys.executable, "-c", DYING, str(place), "run", str(struck.suite), *options])
        process.communicate(timeout=PATIENCE)
        code, place = process.returncode, place + 1
        if code not in (0, -signal.SIGKILL):
            tally.faults.append(f"exit code {code} at call {place}")
            break
        tally.blows["SIGKILL of all"] += code != 0
        struck.look(f"call {place}", tally, may_fail=False)
    _finish(struck, "run", tally)
    tally.campaigns[campaign.name] += 1
    compare(struck, calm, tally)
    print(tally, *tally.faults, sep="\n", flush=True)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=[campaign.name for campaign in CAMPAIGNS], default=[])
    parser.add_argument("--every-call", action="store_true")
    asked = parser.parse_args()
    begin, folder = time.monotonic(), asked.folder.resolve()
    tally = every_call(folder) if asked.every_call else inject(folder, asked.kills, asked.seed, asked.only)
    print(f"{tally}; {time.monotonic() - begin:.0f} s")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
