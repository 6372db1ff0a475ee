"""The paper's statements, tried from the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bnpbench.theory import convolution
from tests.support.command import called


def test_a_row_a_statement(tmp_path: Path) -> None:
    done = called("verify", "lemma-8", "proposition-10", "--trials", "3", "--seed", "1", cwd=tmp_path)
    assert done.returncode == 0
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert rows[2].startswith("| lemma-8 ")
    assert [row.split("|")[-2].strip() for row in rows[2:]] == ["holds", "holds"]
    assert r"\|mu(t,a,p) - mu(p)\|" in rows[3]


def test_a_violated_statement_ends_the_command_with_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(convolution, "mean_bound", lambda k, r, s, top: 0.1 * top)
    done = called("verify", "proposition-10", "--trials", "3", cwd=tmp_path)
    assert done.returncode == 1
    assert re.search(r"\| violated +\|", done.stdout)


def test_an_unknown_statement_is_a_usage_error(tmp_path: Path) -> None:
    done = called("verify", "theorem-44", cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean 'theorem-4'" in done.stderr
