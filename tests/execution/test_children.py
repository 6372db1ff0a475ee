"""The parent's side of its children."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench.errors import ResultsError
from bnpbench.execution.children import ask
from bnpbench.execution.messages import Describe


@pytest.mark.regression
def test_a_process_that_cannot_write_its_log_says_so(tmp_path: Path) -> None:
    """It ended as a bug of bnpbench, with 70."""
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match=r"file/below\.log: cannot be written"):
        ask(Describe(), log=tmp_path / "file" / "below.log")
