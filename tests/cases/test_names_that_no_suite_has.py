"""``new _x`` wrote a suite that ``check`` refused for its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import cli, load_suite


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.interruption, "listen", lambda: None)  # the handlers are not for this process


@pytest.mark.parametrize("name", ["_x", "größe", "x" * 65, "a/b", "", ".toml"])
def test_no_such_suite_is_written(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["new", name]) == 2
    assert "bnpbench: name: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.b+c", "x-1", "mine.toml"])
def test_what_is_written_can_be_read(name: str, tmp_path: Path) -> None:
    assert cli.run(["new", name]) == 0
    (file,) = tmp_path.iterdir()
    assert load_suite(file).name == file.stem == name.removesuffix(".toml")
