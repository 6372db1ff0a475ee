"""Data sets from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import called


def test_the_list_tells_what_is_there(tmp_path: Path) -> None:
    done = called("data", "--data-dir", tmp_path / "none", cwd=tmp_path)
    assert done.returncode == 0
    lines = {line.split()[0]: line for line in done.stdout.splitlines()[2:]}
    told = f"bnpbench data get cifar10 --data-dir {tmp_path / 'none'}"  # where it was looked for
    assert lines["digits"].split()[1] == "there"
    assert lines["cifar10"].split()[1] == "missing"
    assert lines["cifar10"].endswith(f"fetch it with: {told}")
    assert done.stdout.startswith(f"data folder: {tmp_path / 'none'} ")


@pytest.mark.parametrize("where", ["option", "variable"])
def test_a_data_set_that_needs_no_file_is_there(where: str, tmp_path: Path) -> None:
    words = ("--data-dir", tmp_path) if where == "option" else ()
    env = {"BNPBENCH_DATA": str(tmp_path)} if where == "variable" else {}
    done = called("data", "get", "digits", *words, cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (
        0,
        "digits needs no files: scikit-learn's handwritten digits, part of scikit-learn\n",
    )


def test_an_unknown_name_is_told_with_the_nearest(tmp_path: Path) -> None:
    done = called("data", "get", "cifar", cwd=tmp_path)
    assert done.returncode == 2
    assert "cifar10" in done.stderr
