"""Parts merged into one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import called
from tests.support.made_results import Made, epochs


def test_it_says_what_it_merged_and_the_report_stays(tmp_path: Path) -> None:
    made = Made(tmp_path / "results", "tiny")
    for method, seconds in (("bnp", 1.0), ("vanilla", 2.0)):
        made.cell(method, rows=epochs([seconds] * 2))
    made.read()
    before = called("report", cwd=tmp_path).stdout
    done = called("compact", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(" compact: reads results\n")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == f"{made.store.folder.relative_to(tmp_path)}: 2 cells in one file a table\n"
    assert not list(tmp_path.glob("results/*/*/cells/*"))
    assert called("report", cwd=tmp_path).stdout == before


@pytest.mark.regression
def test_an_unreadable_folder_is_not_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended as a bug of bnpbench, with 70."""

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    done = called("compact", tmp_path, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path}: cannot be read (Permission denied)" in done.stderr


@pytest.mark.regression
def test_an_empty_folder_has_nothing_to_compact(tmp_path: Path) -> None:
    done = called("compact", tmp_path, cwd=tmp_path)
    assert done.returncode == 4
    assert "no results in here" in done.stderr
