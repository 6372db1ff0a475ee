"""The parent's side of its children."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import cli
from bnpbench.errors import ResultsError
from bnpbench.execution.children import ask
from bnpbench.execution.messages import Describe


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.interruption, "listen", lambda: None)  # the handlers are not for this process


@pytest.mark.regression
def test_a_process_that_cannot_write_its_log_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match=r"file/below\.log: cannot be written"):
        ask(Describe(), log=tmp_path / "file" / "below.log")
