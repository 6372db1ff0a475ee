"""Which cells a profile is of, and what is seen of them."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from bnpbench import load_suite
from bnpbench.display import Display
from bnpbench.errors import BnpbenchError
from bnpbench.profiling import inspection
from bnpbench.records.documents import Environment
from tests.support.command import suite
from tests.support.displays import Kept
from tests.support.suite_texts import PROFILED


@pytest.mark.regression
def test_profile_says_how_to_choose_one_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "start_forkserver", lambda: None)
    monkeypatch.setattr(inspection, "ask", lambda request: Environment(id="x"))
    with pytest.raises(BnpbenchError, match=r"2 match: .* narrow them down, such as with --only method=vanilla$"):
        inspection.choose(load_suite(suite(tmp_path)), [], [], "cpu", Display())


@pytest.mark.regression
def test_of_several_of_a_kind_the_one_that_is_called_so_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``profile timing --compare bn,bnp`` found two of kind bn, and no filter could tell them apart."""
    monkeypatch.setattr(inspection, "start_forkserver", lambda: None)
    monkeypatch.setattr(inspection, "ask", lambda request: Environment(id="x"))
    hidden = '{ kind = "bn", input = true, label = "bn" }, { kind = "bn", label = "bn-hidden" }'
    loaded = load_suite(suite(tmp_path, PROFILED.replace('"bn"', hidden, 1), "small.toml"))
    cells = inspection.choose(loaded, ["batch_size=64"], ["bn", "bn-hidden", "bnp"], "cpu", Display())
    assert [cell.label for cell in cells] == ["bn", "bn-hidden", "bnp"]
    with pytest.raises(BnpbenchError, match=r"2 match: bn at 64, lr 0\.1; bn-hidden at 64"):
        inspection.choose(loaded, ["batch_size=64", "method=bn"], [], "cpu", Display())


def test_a_flame_graph_holds_the_names_of_the_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "FORMATS", {"flamegraph": "svg"})  # the other takes as long again
    monkeypatch.setattr(inspection, "SECONDS", 2.0)
    loaded = load_suite(suite(tmp_path, PROFILED, "small.toml"))
    (cell,) = loaded.cells(device="cpu", threads=1, only=["method=bnp", "batch_size=64"], seeds=1)
    files, reason = inspection.sample(loaded, cell, None, 0, tmp_path / "flames", Display())
    if reason is not None and not files:
        pytest.skip(reason)
    flames = (tmp_path / "flames" / "bnp-64.svg").read_text()
    assert "precondition" in flames
    assert "bnpbench/bnp/" in flames


def test_there_is_no_flame_graph_of_a_cell_that_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_suite(suite(tmp_path, PROFILED, "small.toml"))
    (cell,) = loaded.cells(device="cpu", threads=1, only=["method=bn", "batch_size=1"], seeds=1)
    with pytest.raises(BnpbenchError, match="bn at batch size 1 is not applicable"):
        inspection.sample(loaded, cell, None, 0, tmp_path, Display())
    tool = tmp_path / "py-spy"  # draws what it saw, whatever becomes of the process
    tool.write_text('#!/bin/sh\nwhile [ "$1" != --output ]; do shift; done\necho graph > "$2"\necho died >&2\n')
    tool.chmod(0o755)
    monkeypatch.setattr(inspection.shutil, "which", lambda *arguments, **options: str(tool))
    monkeypatch.setattr(inspection, "_check", lambda *arguments: None)  # a child would build the cell
    files, reason = inspection.sample(loaded, cell, None, 0, tmp_path, Display())
    assert (files, reason) == ([], "the steps could not be run (died)")
    assert not list(tmp_path.glob("*.svg"))


def test_a_profiler_that_does_not_end_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_suite(suite(tmp_path, PROFILED, "small.toml"))
    (cell,) = loaded.cells(device="cpu", threads=1, only=["method=bnp", "batch_size=64"], seeds=1)
    tool, asked = tmp_path / "py-spy", tmp_path / "asked"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nsleep 1000 &\necho $! >> {asked}.pids\nwait\n')
    tool.chmod(0o755)
    monkeypatch.setattr(inspection.shutil, "which", lambda *arguments, **options: str(tool))
    monkeypatch.setattr(inspection, "_check", lambda *arguments: None)  # a child would build the cell
    monkeypatch.setattr(inspection, "PATIENCE", 0.5)
    shown = Kept()
    (tmp_path / "bnp-64.svg").symlink_to(tmp_path / "elsewhere")
    files, reason = inspection.sample(loaded, cell, None, 0, tmp_path, shown)
    assert files == []
    assert not (tmp_path / "bnp-64.svg").is_symlink()
    assert reason is not None
    assert "did not end within 0.5 s" in reason
    lines = asked.read_text().splitlines()
    assert len(shown.states) == len(lines) >= 2  # a sign of life before each try
    for line in lines:
        rate = line.split()[line.split().index("--rate") + 1]
        assert 0 < int(rate) <= 50
    for pid in Path(f"{asked}.pids").read_text().split():
        assert not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE


def test_without_the_tool_the_reason_is_told_and_nothing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection.shutil, "which", lambda *arguments, **options: None)
    loaded = load_suite(suite(tmp_path, PROFILED, "small.toml"))
    (cell,) = loaded.cells(device="cpu", threads=1, only=["method=bnp", "batch_size=64"], seeds=1)
    files, reason = inspection.sample(loaded, cell, None, 0, tmp_path, Display())
    assert (files, reason) == ([], "py-spy is not installed; pip install py-spy")
