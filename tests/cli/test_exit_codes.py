"""Exit codes, stdout and stderr of the command line."""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bnpbench import read_results
from bnpbench.cli.compare import max_slowdown
from bnpbench.errors import BnpbenchError
from bnpbench.execution.progress import duration
from tests.support.command import SUITE, WRONG, bnpbench, suite


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    done = bnpbench("run", suite(folder), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "## Time per epoch" in done.stdout
    assert "4/4 cells" in done.stderr
    return folder


def test_report_prints_what_run_printed(measured: Path) -> None:
    done = bnpbench("report", cwd=measured)
    assert done.returncode == 0
    assert "# tiny" in done.stdout
    assert "| bnp" in done.stdout


@pytest.mark.parametrize("arguments", [["report"], ["run", "tiny.toml", "--fresh", "--quiet"]])
def test_only_children_import_torch(arguments: list[str], measured: Path) -> None:
    code = (
        f"import sys; from bnpbench.cli import run; code = run({arguments}); "
        "sys.exit(code or any(name.partition('.')[0] == 'torch' for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=measured, capture_output=True, check=False)
    assert done.returncode == 0


def test_a_second_run_says_what_it_kept(measured: Path) -> None:
    done = bnpbench("run", "tiny.toml", cwd=measured)
    assert done.returncode == 0
    assert "4 of 4 cells were finished before and are kept" in done.stderr


def test_check_estimates_the_time_from_earlier_results(measured: Path) -> None:
    cells = read_results(measured / "results").cells
    an_epoch = (cells.wall_seconds / 2).groupby(cells.label).median()
    assert f"\ntime: about {duration(4 * an_epoch.sum())}\n" in bnpbench("check", "tiny.toml", cwd=measured).stdout
    done = bnpbench("check", "tiny.toml", "--epochs", "3000", "--seeds", "1", "--only", "method=bnp", cwd=measured)
    assert "tiny: 1 cells in 1 blocks" in done.stdout
    assert f"\ntime: about {duration(3000 * an_epoch['bnp'])}\n" in done.stdout
    assert "time: unknown" in bnpbench("check", "tiny.toml", "--out", "elsewhere", cwd=measured).stdout


def test_a_comparison_ends_as_what_it_found(measured: Path, tmp_path: Path) -> None:
    same = bnpbench("compare", "results", "results", cwd=measured)
    assert (same.returncode, same.stderr) == (0, "")
    assert "Comparison: " in same.stdout
    shutil.copytree(measured / "results", tmp_path / "dearer")
    for path in tmp_path.glob("dearer/*/*/cells/*.parquet"):
        table = pq.read_table(path)
        place = table.schema.get_field_index("flops_model")
        dearer = pa.array([count + 1 for count in table["flops_model"].to_pylist()], table.schema.field(place).type)
        pq.write_table(table.set_column(place, table.schema.field(place), dearer), path)
    changed = bnpbench("compare", measured / "results", "dearer", cwd=tmp_path)
    assert changed.returncode == 1, changed.stderr
    assert "flops_model" in changed.stdout
    other = shutil.copytree(measured / "results", tmp_path / "other")
    for path in other.glob("*/*/environment.json"):
        environment = json.loads(path.read_text())
        environment["hardware"]["cpu"], environment["id"] = "Another CPU", "0123456789ab"
        path.write_text(json.dumps(environment))
        path.parent.rename(path.parent.with_name("0123456789ab"))
    refused = bnpbench("compare", measured / "results", "other", cwd=tmp_path)
    assert refused.returncode == 4
    assert "Another CPU" in refused.stderr
    assert bnpbench("compare", measured / "results", "other", "--across-machines", cwd=tmp_path).returncode == 0
    (tmp_path / "empty").mkdir()
    assert bnpbench("compare", measured / "results", "empty", cwd=tmp_path).returncode == 4
    baseless = bnpbench("compare", "empty", measured / "results", cwd=tmp_path)
    assert baseless.returncode == 4
    assert "empty" in baseless.stderr


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("5", "write 5% or 500%"),
        ("1", "write 1% or 100%"),
        ("1.5", "write 1.5% or 150%"),
        ("0", "share above 0"),
        ("-5%", "share above 0"),
        ("five", "share above 0"),
        ("1000%", "share above 0"),
        ("nan", "share above 0"),
        ("0.05", None),
        ("5%", None),
        ("500%", None),
    ],
)
def test_a_slowdown_of_more_than_everything_needs_its_unit(asked: str, words: str | None) -> None:
    if words is None:
        assert max_slowdown(asked) == (float(asked.removesuffix("%")) / 100 if "%" in asked else float(asked))
    else:
        with pytest.raises(BnpbenchError, match=rf"--max-slowdown {asked}: .*{words}"):
            max_slowdown(asked)


@pytest.mark.parametrize("option", ["--base", "--new"])
def test_a_missing_shard_of_a_comparison_is_named(option: str, measured: Path) -> None:
    missing = bnpbench("compare", "results", "results", option, "nowhere", cwd=measured)
    assert missing.returncode == 2
    assert missing.stdout == ""
    assert "nowhere" in missing.stderr


@pytest.mark.parametrize(("least", "code"), [(0.0, 0), (2.0, 1), (None, 4)])
def test_a_claim_decides_when_it_is_asked_to(least: float | None, code: int, measured: Path) -> None:
    """The claim is answered from what was measured before; nothing new is trained."""
    method, bound = ("bnp", least) if least is not None else ("bn", 0.0)
    claim = (
        f'[[claim]]\nsays = "so"\nleft = {{ method = "{method}" }}\nmetric = "test_accuracy"\n'
        f"value = {{ at_least = {bound} }}\n"
    )
    text = SUITE.replace('"bnp"]', '"bnp", "bn"]') if least is None else SUITE
    folder = suite(measured, text + claim, f"claim{code}.toml")
    only = ("--only", "method=vanilla") if least is None else ()
    done = bnpbench("run", folder, *only, "--fail-on-claims", cwd=measured)
    assert done.returncode == code, done.stderr
    report = bnpbench("report", "--fail-on-claims", cwd=measured)
    assert report.returncode == code
    assert bnpbench("report", cwd=measured).returncode == 0


def test_a_bug_is_told_as_such(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from bnpbench import cli

    def faulty(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("no such number")

    monkeypatch.setattr(cli, "app", faulty)
    monkeypatch.setattr(cli.interruption, "listen", lambda: None)  # the handlers are not for this process
    assert cli.run(["report"]) == 70
    errors = capsys.readouterr().err
    assert "a bug in bnpbench: ZeroDivisionError: no such number" in errors
    assert "Traceback" not in errors
    assert cli.run(["--debug", "report"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_the_command_line_starts_light() -> None:
    code = (
        "import sys, bnpbench, bnpbench.cli; heavy = {'torch', 'pandas', 'pydantic', 'rich'}; "
        "found = heavy & {name.partition('.')[0] for name in sys.modules}; sys.exit(', '.join(found) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_version_and_help() -> None:
    assert bnpbench("--version", cwd=Path.cwd()).stdout.startswith("bnpbench ")
    done = bnpbench("--help", cwd=Path.cwd())
    assert done.returncode == 0
    for command in ("run", "report", "compare", "check", "new", "data", "env"):
        assert f"\n  {command} " in done.stdout


def processor_seconds() -> float:
    """Of all children so far; unlike wall time it does not depend on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_suite_is_refused_at_once(case: str, tmp_path: Path) -> None:
    text, expected = WRONG[case]
    before = processor_seconds()
    done = bnpbench("run", suite(tmp_path, text), cwd=tmp_path)
    assert processor_seconds() - before < 5
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in expected:
        assert word in done.stderr, done.stderr
    assert not (tmp_path / "results").exists()


def test_what_this_machine_cannot_run_is_refused(tmp_path: Path) -> None:
    path = suite(tmp_path)
    before = processor_seconds()
    no_device = bnpbench("run", path, "--device", "cuda:99", cwd=tmp_path)
    assert no_device.returncode == 2
    assert "--device cuda:99" in no_device.stderr
    (tmp_path / "file").write_text("")
    no_folder = bnpbench("run", path, "--out", tmp_path / "file" / "below", cwd=tmp_path)
    assert no_folder.returncode == 2
    assert str(tmp_path / "file") in no_folder.stderr
    mnist = suite(tmp_path, re.sub("(?m)^dataset = .*$", 'dataset = "mnist"', SUITE))
    no_data = bnpbench("run", mnist, "--data-dir", tmp_path / "none", cwd=tmp_path, env={"BNPBENCH_OFFLINE": "1"})
    assert no_data.returncode == 2
    for remedy in ("--data-dir", "BNPBENCH_DATA", "bnpbench data get mnist"):
        assert remedy in no_data.stderr
    cuda = suite(tmp_path, SUITE.replace("threads = 1", 'threads = 1\ndevice = "cuda"'))
    no_cuda = bnpbench("run", cuda, cwd=tmp_path, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert no_cuda.returncode == 2
    assert 'device = "cuda"' in no_cuda.stderr
    assert processor_seconds() - before < 4 * 5
    for done in (no_device, no_folder, no_data, no_cuda):
        assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "tiny.toml"]


def test_nothing_there(tmp_path: Path) -> None:
    missing = bnpbench("report", "nowhere", cwd=tmp_path)
    assert missing.returncode == 2
    assert "nowhere" in missing.stderr
    (tmp_path / "empty").mkdir()
    assert bnpbench("report", "empty", cwd=tmp_path).returncode == 4


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["run"], "SUITE"),
        (["run", "nosuch"], "nosuch"),
        (["run", "tiny.toml", "--jobs", "0"], "--jobs"),
        (["run", "tiny.toml", "-v"], "-v"),
        (["run", "tiny.toml", "--shard", "3/2"], "--shard 3/2"),
        (["run", "tiny.toml", "--only", "batch_size=7"], "batch_size"),
        (["compare", "."], "new"),
        (["nosuch"], "nosuch"),
        (["new", "../up"], "../up"),
        (["check"], "check"),
    ],
)
def test_wrong_usage(arguments: list[str], word: str, tmp_path: Path) -> None:
    suite(tmp_path)
    done = bnpbench(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cell_that_needs_too_much_memory_ends_alone(tmp_path: Path) -> None:
    text = SUITE.replace("seed = [1, 2]", "seed = [1]\nnetwork.hidden = [[8], [2000000, 2000000]]")
    done = bnpbench("run", suite(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "oom" in done.stdout
    report = bnpbench("report", "--format", "json", cwd=tmp_path)
    assert report.stdout.count('"oom"') >= 2


def test_a_cell_that_takes_too_long_ends_alone(tmp_path: Path) -> None:
    text = SUITE.replace("epochs = 2\n", "").replace("seed = [1, 2]", "seed = [1]\nepochs = [1, 1000000]")
    done = bnpbench("run", suite(tmp_path, text), "--timeout", "4", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "timeout" in done.stdout
    assert "--timeout" in done.stdout


def test_new_writes_a_suite_that_check_accepts(tmp_path: Path) -> None:
    assert bnpbench("new", "mine", cwd=tmp_path).returncode == 0
    assert bnpbench("new", "mine", cwd=tmp_path).returncode == 2
    done = bnpbench("check", "mine.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mine: 18 cells in 6 blocks" in done.stdout


def test_data_and_env_tell_what_is_there(tmp_path: Path) -> None:
    data = bnpbench("data", "--data-dir", tmp_path / "none", cwd=tmp_path)
    assert data.returncode == 0
    assert "cifar10" in data.stdout
    env = bnpbench("env", cwd=tmp_path)
    assert env.returncode == 0
    assert "torch: " in env.stdout
