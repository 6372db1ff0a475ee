"""Runs from the command line: their codes, words and claims."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bnpbench.measure.environment import describe
from tests.support.command import SUITE, WRONG, bnpbench, called, suite
from tests.support.terminals import shown

OTHER = "0123456789ab"


def claim(method: str, bound: float) -> str:
    return (
        f'[[claim]]\nsays = "so"\nleft = {{ method = "{method}" }}\nmetric = "test_accuracy"\n'
        f"value = {{ at_least = {bound} }}\n"
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    done = called("run", suite(folder), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "## Cost and gain" in done.stdout
    assert "Everything: bnpbench report results --all" in done.stdout
    assert "Time per epoch" not in done.stdout
    assert "4/4 cells" in done.stderr
    return folder


def test_report_prints_every_table(measured: Path) -> None:
    done = called("report", cwd=measured)
    assert done.returncode == 0
    assert "# tiny" in done.stdout
    assert "## Cost and gain" in done.stdout
    assert "## Time per epoch" in done.stdout
    assert "| bnp" in done.stdout


def test_report_for_a_terminal_has_the_answer_and_with_all_every_table(measured: Path) -> None:
    answer, everything = (
        called("report", "--format", "terminal", *more, cwd=measured).stdout for more in ([], ["--all"])
    )
    for text in (answer, everything):
        assert "Cost and gain\n" in text
        assert "|" not in text
        assert max(map(len, text.splitlines())) <= 80
    assert "Time per epoch" in everything
    assert "Time per epoch" not in answer
    assert len(answer.splitlines()) <= 24


def test_a_report_of_some_cells(measured: Path) -> None:
    some = called("report", "--only", "method=bnp", "--only", "seed=2", cwd=measured)
    assert some.returncode == 0, some.stderr
    assert "| bnp" in some.stdout
    assert "| vanilla" not in some.stdout
    assert "- cells: 1: 1 ok" in some.stdout
    wrong = called("report", "--only", "method=ln", cwd=measured)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "nothing that was measured has this" in wrong.stderr


def test_a_report_of_one_suite(measured: Path) -> None:
    assert "# tiny" in called("report", "--suite", "tiny", cwd=measured).stdout
    wrong = called("report", "--suite", "tyni", cwd=measured)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "tyni" in wrong.stderr


def test_a_comparison_that_could_overlook_a_slow_down_fails_when_asked_to(measured: Path) -> None:
    """Two processes a side decide nothing."""
    done = called("compare", "results", "results", "--fail-on-undecided", cwd=measured)
    assert done.returncode == 4
    assert "# Comparison: no regression, 2 undecided" in done.stdout
    assert "2 of 3 processes a side" in done.stdout


@pytest.mark.parametrize("arguments", [["report"], ["run", "tiny.toml", "--fresh", "--quiet"]])
def test_only_children_import_torch(arguments: list[str], measured: Path) -> None:
    code = (
        f"import sys; from bnpbench.cli import run; code = run({arguments}); "
        "sys.exit(code or any(name.partition('.')[0] == 'torch' for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=measured, capture_output=True, check=False)
    assert done.returncode == 0


NOTHING = """
import sys
begun = []
sys.addaudithook(lambda event, _: event in ("os.fork", "os.posix_spawn", "subprocess.Popen") and begun.append(event))
from bnpbench.cli import run
code = run(["run", "tiny.toml"])
from multiprocessing import forkserver
assert not begun, begun
assert getattr(forkserver._forkserver, "_forkserver_pid", None) is None
assert not [name for name in sys.modules if name.partition(".")[0] == "torch"]
sys.exit(code)
"""


def test_with_nothing_to_do_nothing_is_started(measured: Path) -> None:
    """Neither a child nor torch: the answer is there in about the time of ``check``."""
    done = subprocess.run([sys.executable, "-c", NOTHING], cwd=measured, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "## Cost and gain" in done.stdout
    assert "4 of 4 cells were finished before and are kept" in done.stderr


def test_a_second_run_says_what_it_kept(measured: Path) -> None:
    done = called("run", "tiny.toml", cwd=measured)
    assert done.returncode == 0
    assert "4 of 4 cells were finished before and are kept" in done.stderr


@pytest.mark.parametrize(("least", "code"), [(0.0, 0), (2.0, 1), (None, 4)])
def test_a_claim_decides_when_it_is_asked_to(least: float | None, code: int, measured: Path) -> None:
    """The claim is answered from what was measured before; nothing new is trained."""
    text = SUITE.replace('"bnp"]', '"bnp", "bn"]') + claim("bn", 0.0) if least is None else SUITE + claim("bnp", least)
    file = suite(measured, text, f"claim{code}.toml")
    only = ("--only", "method=vanilla") if least is None else ()
    done = called("run", file, *only, "--fail-on-claims", cwd=measured)
    assert done.returncode == code, done.stderr
    report = called("report", "--fail-on-claims", cwd=measured)
    assert report.returncode == code
    assert called("report", cwd=measured).returncode == 0


@pytest.mark.regression
def test_what_another_machine_measured_decides_no_claim_of_this_one(tmp_path: Path) -> None:
    """``run --fail-on-claims`` was decided by what another machine had measured into the same folder."""
    run = ("run", suite(tmp_path, SUITE + claim("bnp", 0.0)), "--quiet", "--fail-on-claims")
    assert called(*run, cwd=tmp_path).returncode == 0
    (here,) = (path.parent for path in tmp_path.glob("results/tiny/*/environment.json"))
    there = shutil.copytree(here, here.with_name(OTHER))
    environment = json.loads((here / "environment.json").read_text())
    (there / "environment.json").write_text(json.dumps({**environment, "id": OTHER}))
    cells = {cell["key"]: cell["label"] for cell in json.loads((here.parent / "suite.json").read_text())["cells"]}
    for part in (there / "cells").glob("*.parquet"):
        if cells[part.stem] == "bnp":
            part.unlink()
    assert called("report", "--fail-on-claims", cwd=tmp_path).returncode == 4
    done = called(*run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Claims: 0 of 1 hold, 1 undecided." in done.stdout  # of this machine alone


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_suite_is_refused_at_once(case: str, tmp_path: Path) -> None:
    text, expected = WRONG[case]
    before = time.process_time()
    done = called("run", suite(tmp_path, text), cwd=tmp_path)
    assert time.process_time() - before < 4
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in expected:
        assert word in done.stderr, done.stderr
    assert not (tmp_path / "results").exists()


def test_what_this_machine_cannot_run_is_refused(tmp_path: Path) -> None:
    path = suite(tmp_path)
    no_device = called("run", path, "--device", "cuda:99", cwd=tmp_path)
    assert no_device.returncode == 2
    assert "--device cuda:99" in no_device.stderr
    (tmp_path / "file").write_text("")
    no_folder = called("run", path, "--out", tmp_path / "file" / "below", cwd=tmp_path)
    assert no_folder.returncode == 2
    assert str(tmp_path / "file") in no_folder.stderr
    mnist = suite(tmp_path, re.sub("(?m)^dataset = .*$", 'dataset = "mnist"', SUITE))
    no_data = called("run", mnist, "--data-dir", tmp_path / "none", cwd=tmp_path, env={"BNPBENCH_OFFLINE": "1"})
    assert no_data.returncode == 2
    for remedy in ("--data-dir", "BNPBENCH_DATA", "bnpbench data get mnist"):
        assert remedy in no_data.stderr
    for done in (no_device, no_folder, no_data):
        assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "tiny.toml"]


def test_without_a_gpu_a_suite_for_one_is_refused(tmp_path: Path) -> None:
    cuda = suite(tmp_path, SUITE.replace("threads = 1", 'threads = 1\ndevice = "cuda"'))
    done = bnpbench("run", cuda, cwd=tmp_path, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert done.returncode == 2
    assert 'device = "cuda"' in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


@pytest.mark.regression
@pytest.mark.parametrize("shard", ["²/3", "1/²", "1/" + "9" * 5000, "0/2", "1/2/3"])
def test_a_shard_that_is_no_number(shard: str, tmp_path: Path) -> None:
    """It ended as a bug of bnpbench, with 70."""
    done = called("run", suite(tmp_path), "--shard", shard, cwd=tmp_path)
    assert done.returncode == 2
    assert "give I/N" in done.stderr


def test_a_cell_that_needs_too_much_memory_ends_alone(tmp_path: Path) -> None:
    text = SUITE.replace("seed = [1, 2]", "seed = [1]\nnetwork.hidden = [[8], [2000000, 2000000]]")
    done = called("run", suite(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "oom" in done.stdout
    report = called("report", "--format", "json", cwd=tmp_path)
    assert report.stdout.count('"oom"') >= 2


def test_a_cell_that_takes_too_long_ends_alone(tmp_path: Path) -> None:
    text = SUITE.replace("epochs = 2\n", "").replace("seed = [1, 2]", "seed = [1]\nepochs = [1, 1000000]")
    done = called("run", suite(tmp_path, text), "--timeout", "4", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "timeout" in done.stdout
    assert "--timeout" in done.stdout


def test_the_last_screen_of_the_quick_suite_holds_the_whole_answer(
    tmp_path: Path, snapshot: Callable[[str, str], None]
) -> None:
    """On a terminal of 80 columns and 24 lines, the last of them the next prompt; of kept results, as times vary."""
    kept = Path(__file__).parents[1] / "unchanged" / "measured" / "quick"
    (environment,) = (path for path in kept.iterdir() if path.is_dir())
    shutil.copytree(environment, tmp_path / "results" / "quick" / describe().id)
    line = "run quick --device cpu --quiet"
    code, text = shown([line], cwd=tmp_path, columns=80, rows=24)[line]
    lines = [told.rstrip() for told in text.splitlines()]
    assert code == 0
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("quick on ")
    answer = lines[: next(place for place, told in enumerate(lines) if told.startswith("Claims: "))]
    assert sum(told.startswith(("60 ", "6 ", "1 ")) for told in answer) == 9
    snapshot("last-screen-of-quick.txt", "\n".join(["quick on THIS MACHINE", *lines[1:], ""]))
