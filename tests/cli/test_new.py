"""A starter suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import load_suite
from tests.support.command import called


def test_it_writes_a_suite_that_check_accepts(tmp_path: Path) -> None:
    assert called("new", "mine", cwd=tmp_path).stdout == "wrote mine.toml; run it with: bnpbench run mine.toml\n"
    written = (tmp_path / "mine.toml").read_text()
    again = called("new", "mine", cwd=tmp_path)
    assert again.returncode == 2
    assert "mine.toml is there already" in again.stderr
    assert (tmp_path / "mine.toml").read_text() == written
    done = called("check", "mine.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mine: 18 cells in 6 blocks" in done.stdout


def test_a_folder_that_takes_no_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    done = called("new", "mine", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "bnpbench: mine.toml cannot be written (Permission denied)\n")


@pytest.mark.regression
@pytest.mark.parametrize("name", ["_x", "größe", "x" * 65, "a/b", "", ".toml"])
def test_no_such_suite_is_written(name: str, tmp_path: Path) -> None:
    """``new _x`` wrote a suite that ``check`` refused for its name."""
    done = called("new", name, cwd=tmp_path)
    assert done.returncode == 2
    assert "bnpbench: name: " in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.regression
@pytest.mark.parametrize("name", ["a.b+c", "x-1", "mine.toml"])
def test_what_is_written_can_be_read(name: str, tmp_path: Path) -> None:
    assert called("new", name, cwd=tmp_path).returncode == 0
    (file,) = tmp_path.iterdir()
    assert load_suite(file).name == file.stem == name.removesuffix(".toml")
