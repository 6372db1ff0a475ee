"""Where the time of a step goes, as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import called, suite
from tests.support.suite_texts import PROFILED


def test_two_methods_side_by_side_and_a_trace(tmp_path: Path) -> None:
    suite(tmp_path, PROFILED, "small.toml")
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "bn-64.trace.json").symlink_to(tmp_path / "elsewhere")
    done = called(
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


def test_several_devices_are_too_many(tmp_path: Path) -> None:
    suite(tmp_path, PROFILED.replace("[train]", "[train]\ndevices = 2").replace("[1, 64]", "[4, 64]"), "small.toml")
    done = called("profile", "small.toml", "--only", "method=bnp", "--only", "batch_size=64", cwd=tmp_path)
    assert done.returncode == 2
    assert "one device" in done.stderr


def test_several_cells_are_too_many(tmp_path: Path) -> None:
    suite(tmp_path, PROFILED, "small.toml")
    done = called("profile", "small.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "6 match" in done.stderr
    assert "--only" in done.stderr


@pytest.mark.regression
def test_a_file_is_no_folder_for_a_profile(tmp_path: Path) -> None:
    """It ended as a bug of bnpbench, with 70."""
    suite(tmp_path)
    (tmp_path / "file").touch()
    done = called("profile", "tiny.toml", "--only", "method=bnp", "--output", "file", cwd=tmp_path)
    assert done.returncode == 2
    assert "--output file: no folder can be made here (File exists)" in done.stderr
