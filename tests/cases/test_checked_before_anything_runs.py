"""The second suite of a command was looked at when the first had run; data that ``--only`` leaves out were missed."""

from __future__ import annotations

from pathlib import Path

from tests.command import SUITE, bnpbench, suite

MNIST = SUITE.replace(
    'dataset = { kind = "synthetic", shape = [12], train = 203, test = 50, classes = 4 }\n', ""
).replace("seed = [1, 2]", 'dataset = ["digits", "mnist"]')


def test_every_suite_is_checked_before_the_first_runs(tmp_path: Path) -> None:
    suite(tmp_path, SUITE, "first.toml")
    suite(tmp_path, SUITE.replace('"tiny"', '"second"').replace("threads = 1", 'device = "cuda"'), "second.toml")
    done = bnpbench("run", "first.toml", "second.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert 'device = "cuda"' in done.stderr
    assert not (tmp_path / "results" / "tiny").exists()


def test_data_that_are_not_asked_for_are_not_missed(tmp_path: Path) -> None:
    suite(tmp_path, MNIST)
    run = ("run", "tiny.toml", "--offline", "--data-dir", tmp_path / "empty", "-q", "--only")
    assert bnpbench(*run, "dataset=mnist", cwd=tmp_path).returncode == 2
    done = bnpbench(*run, "dataset=digits", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
