"""Where the time of a step goes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest

from bnpbench import BNP, load_suite
from bnpbench.errors import BnpbenchError
from bnpbench.execution.messages import Profile
from bnpbench.profiling import inspection
from bnpbench.profiling.phases import profile
from tests.support.command import bnpbench, suite

SUITE = """
name = "small"
[train]
dataset = { kind = "synthetic", shape = [300], train = 2000, test = 50, classes = 4 }
network = { kind = "fc", hidden = [100, 100] }
optimizer = { kind = "sgd", lr = 0.1 }
epochs = 2
threads = 1
[sweep]
method = ["vanilla", "bn", "bnp"]
batch_size = [1, 64]
seed = [1, 2]
"""


def test_two_methods_side_by_side_and_a_trace(tmp_path: Path) -> None:
    suite(tmp_path, SUITE, "small.toml")
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "bn-64.trace.json").symlink_to(tmp_path / "elsewhere")
    done = bnpbench(
        "profile", "small.toml", "--only", "batch_size=64", "--compare", "bn,bnp", "--format", "json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "elsewhere").exists()
    (chapter,) = json.loads(done.stdout)
    phases, operators = chapter["sections"][0]["tables"]
    milliseconds = {(r["method"], r["quantity"].partition(",")[0]): r["value"] for r in phases["records"]}
    for method in ("bn", "bnp"):
        named = [milliseconds[method, name] for name in ("data", "forward", "backward", "precondition", "update")]
        assert all(value > 0 for value in named)
        assert sum(named) + milliseconds[method, "between phases"] == pytest.approx(milliseconds[method, "step"])
    assert milliseconds["bnp", "precondition"] > 2 * milliseconds["bn", "precondition"]
    assert {"addmm", "mm"} <= {row[0] for row in operators["rows"]}
    names = {}
    for method in ("bn", "bnp"):
        trace = json.loads((tmp_path / "profile" / f"{method}-64.trace.json").read_text())
        names[method] = {event.get("name") for event in trace["traceEvents"]}
        assert {"bnpbench: step", "bnpbench: precondition", "aten::mm"} <= names[method]
    assert "aten::native_batch_norm" in names["bn"] - names["bnp"]


def test_what_is_slow_shows_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precondition = BNP.precondition

    def slow(self: BNP) -> None:
        time.sleep(0.02)
        precondition(self)

    monkeypatch.setattr(BNP, "precondition", slow)
    monkeypatch.setattr("bnpbench.profiling.phases.configure", lambda *arguments: None)
    (cell,) = load_suite(suite(tmp_path, SUITE, "small.toml")).cells(
        device="cpu", threads=1, only=["method=bnp", "batch_size=64"], seeds=1
    )
    found = profile(Profile(cell, 5, None, 0, tmp_path / "trace.json"))
    assert found.phases["precondition"].host > 20
    assert found.phases["precondition"].host > 0.5 * found.step.host
    assert sum(phase.host for phase in found.phases.values()) == pytest.approx(found.step.host, rel=0.2)


def test_a_flame_graph_holds_the_names_of_the_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "FORMATS", {"flamegraph": "svg"})  # the other takes as long again
    monkeypatch.setattr(inspection, "SECONDS", 5.0)
    loaded = load_suite(suite(tmp_path, SUITE, "small.toml"))
    (cell,) = loaded.cells(device="cpu", threads=1, only=["method=bnp", "batch_size=64"], seeds=1)
    files, reason = inspection.sample(loaded, cell, None, 0, tmp_path / "flames", print)
    if reason is not None and not files:
        pytest.skip(reason)
    flames = (tmp_path / "flames" / "bnp-64.svg").read_text()
    assert "precondition" in flames
    assert "bnpbench/bnp/" in flames


def test_there_is_no_flame_graph_of_a_cell_that_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_suite(suite(tmp_path, SUITE, "small.toml"))
    (cell,) = loaded.cells(device="cpu", threads=1, only=["method=bn", "batch_size=1"], seeds=1)
    with pytest.raises(BnpbenchError, match="bn at batch size 1 is not applicable"):
        inspection.sample(loaded, cell, None, 0, tmp_path, print)
    tool = tmp_path / "py-spy"  # draws what it saw, whatever becomes of the process
    tool.write_text('#!/bin/sh\nwhile [ "$1" != --output ]; do shift; done\necho graph > "$2"\necho died >&2\n')
    tool.chmod(0o755)
    monkeypatch.setattr(inspection.shutil, "which", lambda *arguments, **options: str(tool))
    monkeypatch.setattr(inspection, "_check", lambda *arguments: None)
    files, reason = inspection.sample(loaded, cell, None, 0, tmp_path, print)
    assert (files, reason) == ([], "the steps could not be run (died)")
    assert not list(tmp_path.glob("*.svg"))


def test_a_profiler_that_does_not_end_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_suite(suite(tmp_path, SUITE, "small.toml"))
    (cell,) = loaded.cells(device="cpu", threads=1, only=["method=bnp", "batch_size=64"], seeds=1)
    tool, asked = tmp_path / "py-spy", tmp_path / "asked"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nsleep 1000 &\necho $! >> {asked}.pids\nwait\n')
    tool.chmod(0o755)
    monkeypatch.setattr(inspection.shutil, "which", lambda *arguments, **options: str(tool))
    monkeypatch.setattr(inspection, "_check", lambda *arguments: None)
    monkeypatch.setattr(inspection, "PATIENCE", 0.5)
    said: list[str] = []
    (tmp_path / "bnp-64.svg").symlink_to(tmp_path / "elsewhere")
    files, reason = inspection.sample(loaded, cell, None, 0, tmp_path, said.append)
    assert files == []
    assert not (tmp_path / "bnp-64.svg").is_symlink()
    assert reason is not None
    assert "did not end within 0.5 s" in reason
    lines = asked.read_text().splitlines()
    assert len(said) == len(lines) >= 2  # a sign of life before each try
    for line in lines:
        rate = line.split()[line.split().index("--rate") + 1]
        assert 0 < int(rate) <= 50
    for pid in Path(f"{asked}.pids").read_text().split():
        assert not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE


def test_without_the_tool_the_reason_is_told_and_nothing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection.shutil, "which", lambda *arguments, **options: None)
    loaded = load_suite(suite(tmp_path, SUITE, "small.toml"))
    (cell,) = loaded.cells(device="cpu", threads=1, only=["method=bnp", "batch_size=64"], seeds=1)
    files, reason = inspection.sample(loaded, cell, None, 0, tmp_path, print)
    assert (files, reason) == ([], "py-spy is not installed; pip install py-spy")


def test_several_devices_are_too_many(tmp_path: Path) -> None:
    suite(tmp_path, SUITE.replace("[train]", "[train]\ndevices = 2").replace("[1, 64]", "[4, 64]"), "small.toml")
    done = bnpbench("profile", "small.toml", "--only", "method=bnp", "--only", "batch_size=64", cwd=tmp_path)
    assert done.returncode == 2
    assert "one device" in done.stderr


def test_several_cells_are_too_many(tmp_path: Path) -> None:
    suite(tmp_path, SUITE, "small.toml")
    done = bnpbench("profile", "small.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "6 match" in done.stderr
    assert "--only" in done.stderr
