"""Commands end with the exit codes, and the words, with which they ended."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.command import SUITE, WRONG, bnpbench, called

HERE = Path(__file__).parent
MEASURED = HERE / "measured"
LINES = 12  # of stderr that are kept
DATED = re.compile(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:[^:\n]+: (?:reads|looks for|imports|preflight)\b.*\n)?")
"""The date of what is said while one waits, and all of it where it only says what goes on."""
APART = ("no-command", "run", "run-no-cuda", "run-cuda-in-suite", "report-two")  # in a process of their own
WITH_STDOUT = ("check", "report-damaged", "report-without", "compare-nothing")
CLAIM = '[[claim]]\nsays = "so"\nleft = { method = "METHOD" }\nmetric = "test_accuracy"\nvalue = { at_least = BOUND }\n'
NOT_APPLICABLE = SUITE.replace("batch_size = 10", "batch_size = 1").replace('"bnp"', '"bn"')
WITH_PLUGIN = SUITE.replace('name = "tiny"', 'name = "tiny"\nplugins = ["mine.py"]')


@dataclass(frozen=True)
class Case:
    """A command, a list of words.

    Attributes:
        words: its arguments.
        text: of ``tiny.toml`` beside it.
        files: others beside it.
        measured: kept results beside it.
        env: variables.
        change: what is done to the folder first.
    """

    words: str
    text: str = SUITE
    files: dict[str, str] = field(default_factory=dict)
    measured: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    change: Callable[[Path], None] = lambda folder: None


def claim(method: str, bound: float) -> str:
    return CLAIM.replace("METHOD", method).replace("BOUND", str(bound))


def replaced(old: str, new: str) -> str:
    assert SUITE.count(old) == 1
    return SUITE.replace(old, new)


def damaged_cells(folder: Path) -> None:
    (path,) = folder.glob("timing/*/cells.parquet")
    path.write_bytes(path.read_bytes()[:5000])


def damaged_epochs(folder: Path) -> None:
    (path,) = folder.glob("timing/*/epochs.parquet")
    content = bytearray(path.read_bytes())
    content[3000:3100] = bytes(100)
    path.write_bytes(content)


def strange_suite_json(folder: Path) -> None:
    (folder / "timing" / "suite.json").write_text('{"name": 3, "cells": [')


def without_cells(folder: Path) -> None:
    (path,) = folder.glob("timing/*/cells.parquet")
    path.unlink()


def other_hardware(folder: Path) -> None:
    shutil.copytree(folder / "timing", folder / "other" / "timing")
    (path,) = folder.glob("other/timing/*/environment.json")
    text = path.read_text().replace("AMD EPYC", "Another CPU").replace(path.parent.name, "0123456789ab")
    path.write_text(text)
    path.parent.rename(path.parent.with_name("0123456789ab"))


CASES = {
    "no-command": Case(""),
    "version": Case("--version"),
    "unknown-command": Case("nosuch"),
    "unknown-option": Case("run tiny.toml --nosuch"),
    "run-nothing": Case("run"),
    "run-unknown-suite": Case("run nosuch"),
    "run-no-toml": Case("run tiny.toml", text="a = = 1\n"),
    "run-empty": Case("run tiny.toml", text=""),
    "run-jobs": Case("run tiny.toml --jobs 0"),
    "run-shard": Case("run tiny.toml --shard 3/2"),
    "run-only-value": Case("run tiny.toml --only batch_size=7"),
    "run-only-key": Case("run tiny.toml --only batchsize=10"),
    "run-only-words": Case("run tiny.toml --only method"),
    "run-seeds": Case("run tiny.toml --seeds 0"),
    "run-epochs": Case("run tiny.toml --epochs 0"),
    "run-device": Case("run tiny.toml --device gpu"),
    "run-timeout": Case("run tiny.toml --timeout 0"),
    "run-no-cuda": Case("run tiny.toml --device cuda", env={"CUDA_VISIBLE_DEVICES": "-1"}),
    "run-cuda-in-suite": Case(
        "run tiny.toml", replaced("threads = 1", 'threads = 1\ndevice = "cuda"'), env={"CUDA_VISIBLE_DEVICES": "-1"}
    ),
    "run-no-folder": Case("run tiny.toml --out file/below", files={"file": ""}),
    "run-no-data": Case(
        "run tiny.toml --data-dir none",
        re.sub("(?m)^dataset = .*$", 'dataset = "mnist"', SUITE),
        env={"BNPBENCH_OFFLINE": "1"},
    ),
    "run-plugin": Case("run tiny.toml", WITH_PLUGIN, {"mine.py": ""}),
    "run-plugin-absent": Case("run tiny.toml --allow-plugins", WITH_PLUGIN),
    "run-plugin-faulty": Case("run tiny.toml --allow-plugins", WITH_PLUGIN, {"mine.py": "import nosuchmodule\n"}),
    "run-plugin-outside": Case("check tiny.toml --allow-plugins", WITH_PLUGIN.replace("mine.py", "../mine.py")),
    "run": Case("run tiny.toml --only method=vanilla --seeds 1"),
    "run-claim-holds": Case("run tiny.toml --seeds 1 --quiet --fail-on-claims", SUITE + claim("bnp", 0)),
    "run-claim-fails": Case("run tiny.toml --quiet --fail-on-claims", SUITE + claim("bnp", 2)),
    "run-claim-without-data": Case(
        "run tiny.toml --quiet --fail-on-claims --only method=vanilla", SUITE + claim("bnp", 0)
    ),
    "run-not-applicable": Case("run tiny.toml --only method=bn --seeds 1 --quiet", NOT_APPLICABLE),
    "check": Case("check tiny.toml"),
    "check-nothing": Case("check"),
    "check-not-applicable": Case("check tiny.toml", NOT_APPLICABLE),
    "check-groups": Case("check tiny.toml", replaced('"bnp"', '{ kind = "gn", groups = 2 }')),
    "check-one-feature": Case("check tiny.toml", replaced("[9, 8]", "[1]").replace('"bnp"', '"ln"')),
    "check-quoted-axis": Case("check tiny.toml", SUITE + '"optimizer.lr" = [0.1, 0.2]\n'),
    "check-long-warmup": Case(
        "check tiny.toml",
        replaced(
            "threads = 1",
            'threads = 1\nschedule = { kind = "constant", warmup = { kind = "linear", start = 0.01, epochs = 100 } }',
        ),
    ),
    "check-claim-about-nothing": Case("check tiny.toml", SUITE + claim("ln", 0)),
    "check-unknown-metric": Case("check tiny.toml", SUITE + claim("bnp", 0).replace("test_acc", "test_aco")),
    "check-override-of-nothing": Case(
        "check tiny.toml", SUITE + "[[override]]\nwhen = { batch_size = 7 }\nset = { epochs = 3 }\n"
    ),
    "new": Case("new mine"),
    "new-again": Case("new tiny"),
    "new-above": Case("new ../up"),
    "report-nowhere": Case("report nowhere"),
    "report-empty": Case("report empty", change=lambda folder: (folder / "empty").mkdir()),
    "report-format": Case("report timing --format pdf", measured=("timing",)),
    "report-claims": Case("report timing --fail-on-claims", measured=("timing",)),
    "report-two": Case("report timing hessian", measured=("timing", "hessian")),
    "report-damaged-cells": Case("report timing", measured=("timing",), change=damaged_cells),
    "report-damaged-epochs": Case("report timing", measured=("timing",), change=damaged_epochs),
    "report-damaged-suite": Case("report timing", measured=("timing",), change=strange_suite_json),
    "report-without-cells": Case("report timing", measured=("timing",), change=without_cells),
    "report-output": Case("report timing --output nowhere/x.md", measured=("timing",)),
    "compare-one": Case("compare timing", measured=("timing",)),
    "compare-same": Case("compare timing timing", measured=("timing",)),
    "compare-nothing-shared": Case("compare timing hessian", measured=("timing", "hessian")),
    "compare-empty": Case(
        "compare timing empty", measured=("timing",), change=lambda folder: (folder / "empty").mkdir()
    ),
    "compare-no-base": Case(
        "compare empty timing", measured=("timing",), change=lambda folder: (folder / "empty").mkdir()
    ),
    "compare-nowhere": Case("compare timing timing --new nowhere", measured=("timing",)),
    "compare-slowdown": Case("compare timing timing --max-slowdown 5", measured=("timing",)),
    "compare-machines": Case("compare timing other", measured=("timing",), change=other_hardware),
    "compare-across": Case("compare timing other --across-machines", measured=("timing",), change=other_hardware),
    "compact-nowhere": Case("compact nowhere"),
    "compact-again": Case("compact .", measured=("timing",)),
    "compact-damaged": Case("compact .", measured=("timing",), change=damaged_cells),
    "verify-unknown": Case("verify theorem-99"),
    "profile-many": Case("profile tiny.toml"),
    "profile-only": Case("profile tiny.toml --only method=ln"),
    "data-unknown": Case("data get nosuch"),
    "data-generated": Case("data get digits"),
    **{f"wrong-{name.replace(' ', '-')}": Case("run tiny.toml", text) for name, (text, _) in WRONG.items()},
}


def normalized(text: str, folder: Path) -> str:
    """Without the folder, durations and what else differs from run to run."""
    text = text.replace(str(folder), "FOLDER").replace(str(folder.resolve()), "FOLDER")
    text = re.sub(r"\d+(?:\.\d+)?(?= ?(?:s|ms|min|h)\b)", "T", text)
    return re.sub(r"[0-9.]+(?= [KMGT]?i?B\b)", "B", text)


@pytest.mark.parametrize("name", CASES)
def test_a_command_ends_as_it_did(name: str, tmp_path: Path, snapshot: Callable[[str, str], None]) -> None:
    case = CASES[name]
    (tmp_path / "tiny.toml").write_text(case.text)
    for file, text in case.files.items():
        (tmp_path / file).write_text(text)
    for results in case.measured:
        shutil.copytree(MEASURED / results, tmp_path / results)
    case.change(tmp_path)
    done = (called if name not in APART else bnpbench)(*case.words.split(), cwd=tmp_path, env=case.env)
    errors = normalized(DATED.sub("", done.stderr), tmp_path).splitlines()[:LINES]
    told = [f"$ bnpbench {case.words}".rstrip(), f"exit {done.returncode}", *errors]
    if name.startswith(WITH_STDOUT):
        told += ["stdout:", *normalized(done.stdout, tmp_path).splitlines()]
    snapshot(f"commands/{name}.txt", "\n".join(told) + "\n")
