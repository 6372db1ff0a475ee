"""What ``check`` tells of a suite; ``--smoke``: two eager steps of every distinct cell."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch

from bnpbench import load_suite, run_suite
from bnpbench.execution.listing import Smoked, listing, smoke_check
from bnpbench.execution.options import Options
from tests.support.command import bnpbench, suite
from tests.support.plugins import PLUGIN, write
from tests.support.plugins import SUITE as OWN

SYNTHETIC = '{ kind = "synthetic", shape = [12], train = 30, test = 10, classes = 4 }'
TEXT = f"""
name = "small"
[train]
dataset = {SYNTHETIC}
network = {{ kind = "fc", hidden = [9, 8] }}
optimizer = {{ kind = "sgd", lr = 0.1 }}
batch_size = 10
epochs = 1
threads = 1
engine = "eager"
device = "cpu"
[sweep]
method = ["vanilla", "bn", "bnp"]
seed = [1, 2]
"""
LIGHT = ("fc-cifar10", "fc-mnist", "fc-small-batch", "hessian", "learning-rates", "quick", "regression", "timing")
"""Shipped suites that take some seconds; ``tests/benchmarks/smoke.py`` tries all."""

LINE = PLUGIN[: PLUGIN.index("raise ArithmeticError")].count("\n") + 1  # of the fault in it


def smoked(folder: Path, text: str, *only: str) -> Smoked:
    """Without any data set on the disk."""
    return smoke_check(Options(only=only).selection(load_suite(suite(folder, text))), folder / "no data")


def of(found: Smoked, status: str) -> dict[str, str]:
    """Names and messages of the cells with this status."""
    return {found.names[one.key]: one.message for one in found.tried if one.status == status}


def test_the_steps_are_those_that_a_run_begins_with(tmp_path: Path) -> None:
    """An epoch of three batches: its loss is the mean of the three, the third before its update."""
    warmup = '[train.schedule]\nkind = "constant"\nwarmup = { kind = "linear", start = 0.01, epochs = 1 }\n[sweep]'
    path = suite(tmp_path, TEXT.replace("[sweep]", warmup))
    ran = run_suite(load_suite(path), tmp_path / "out", device="cpu")
    cells = ran.cells[ran.cells.seed == 1].set_index("key").label
    expected = ran.epochs[ran.epochs.key.isin(cells.index)].set_index("key").train_loss
    found = smoke_check(Options().selection(load_suite(path)))
    assert (len(found.tried), found.cells, found.exit_code) == (3, 6, 0)
    for one in found.tried:  # keys are those of the run: its engine is eager
        assert len(one.losses) == 3
        assert sum(one.losses) / 3 == pytest.approx(expected[one.key], rel=1e-6)


def test_what_changes_no_step_is_tried_once(tmp_path: Path) -> None:
    several = '[sweep]\nengine = ["eager", "compiled"]\nepochs = [1, 2]\nthreads = [1, 2]\nseed = [1, 2, 3]\n'
    text = TEXT[: TEXT.index("[sweep]")].replace('engine = "eager"\n', "").replace("epochs = 1\n", "")
    text = text.replace("threads = 1\n", "") + several + 'method = ["bnp"]\n'
    assert len(smoked(tmp_path, text).tried) == 1
    for axis in (
        "optimizer.lr = [0.1, 0.2]",
        "batch_size = [5, 10]",
        'initialization = ["glorot", "he-normal"]',
        'precision = ["float32", "bf16"]',
        "weight_decay = [0.0, 1e-4]",
        'optimizer.kind = ["sgd", "adam"]',
    ):
        found = smoked(
            tmp_path, f"{text}{axis}\n".replace("batch_size = 10\n", "" if "batch" in axis else "batch_size = 10\n")
        )
        assert (len(found.tried), len(set(found.names.values()))) == (2, 2), axis


def test_every_axis_is_shown(tmp_path: Path) -> None:
    """Cells that differ in an optimizer, a thread or an option of a chosen method were one row."""
    plain = listing(Options().selection(load_suite(suite(tmp_path, TEXT))), tmp_path / "none")
    assert plain.columns[5:] == ("epochs", "seeds", "cells", "time")
    several = 'optimizer = [{ kind = "sgd", lr = 0.1 }, { kind = "adam", lr = 0.1 }]\nthreads = [1, 2]\n'
    several += '"method.rho" = [0.9, 0.99]\n[select]\nover = "method.rho"\n'
    text = TEXT.replace("epochs = 1", "epochs = 1\nvalidation = 0.1")
    listed = listing(Options().selection(load_suite(suite(tmp_path, text + several))), tmp_path / "none")
    assert listed.columns[5:] == ("epochs", "method.rho", "optimizer.kind", "threads", "seeds", "cells", "time")
    rows = {row[:1] + row[6:9] for row in listed.rows}
    rates = {"vanilla": "–", "bn": "–"}
    optimized = list(product(("sgd", "adam"), ("1", "2")))
    assert rows == {
        *((name, rho, *one) for name, rho in rates.items() for one in optimized),
        *(("bnp", rho, *one) for rho in ("0.9", "0.99") for one in optimized),
    }
    assert {row[9:11] for row in listed.rows} == {("1", "1")}


@pytest.mark.regression
def test_the_table_is_that_of_every_report(tmp_path: Path) -> None:
    """A line in a label made one column of it two."""
    text = TEXT.replace('"bnp"]', '{ kind = "bnp", label = "b|c" }]')
    listed = listing(Options().selection(load_suite(suite(tmp_path, text))), tmp_path / "none")
    lines = [line for line in listed.text().splitlines() if line.startswith("|")]
    assert lines[1].replace("-", "") == "|" + ":|" * len(listed.columns)
    assert len(set(map(len, lines))) == 1
    assert [line.split("|")[1].strip() for line in lines if "\\" not in line] == [
        "method",
        ":---------",
        "vanilla",
        "bn",
    ]
    assert lines[-1].startswith("| b\\|c ")


def too_long(folder: Path, rate: str) -> Path:
    override = f'[[override]]\nwhen = {{ method = "vanilla" }}\nset = {{ optimizer.lr = {rate} }}\n'
    return suite(folder, TEXT + override)


def test_a_loss_that_is_no_number_is_named_with_its_place(tmp_path: Path) -> None:
    done = bnpbench("check", too_long(tmp_path, "1e38"), "--smoke", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    told = done.stdout[done.stdout.index("two eager steps") :]
    assert "3 distinct of 6 cells: 2 finite, 1 not finite" in told
    assert "after the first step" in told
    (line,) = [line for line in told.splitlines() if line.startswith("- ")]
    for word in ("vanilla", "fc, hidden = [9, 8]", "synthetic", "batch size 10", "learning rate 1e+38"):
        assert word in line
    assert "small 3/3 bnp" in done.stderr


def test_a_loss_may_be_a_number_for_a_step(tmp_path: Path) -> None:
    loaded = load_suite(too_long(tmp_path, "1e12"))
    found = smoke_check(Options().selection(loaded))
    assert found.exit_code == 1
    assert ["after the second step" in message for message in of(found, "not finite").values()] == [True]
    assert smoke_check(Options(only=("method=bn",)).selection(loaded)).exit_code == 0


def test_the_paper_s_deepest_network_with_bnp_alone(tmp_path: Path) -> None:
    """He-normal weights, learning rate .1: each layer multiplies what it passes on, and 110 of them are too many."""
    text = """
name = "deep"
[train]
dataset = "cifar10"
network = { kind = "resnet", depth = 110 }
optimizer = { kind = "sgd", lr = 0.1, momentum = 0.9 }
batch_size = 4
epochs = 1
device = "cpu"
initialization = { kind = "he-normal" }
[sweep]
method = ["bnp", "bnp+gn"]
"""
    found = smoked(tmp_path, text)
    assert (found.exit_code, [one.status for one in found.tried]) == (1, ["not finite", "finite"])
    assert "cifar10" in found.replaced
    assert "generated examples instead of cifar10" in found.text()


def test_data_that_are_absent_are_generated_and_nothing_is_fetched(tmp_path: Path) -> None:
    text = TEXT.replace(SYNTHETIC, '"mnist"').replace('"fc", hidden = [9, 8]', '"cnn"')
    found = smoked(tmp_path, text, "method=bnp")
    assert (found.exit_code, found.tried[0].status) == (0, "finite")
    assert "MNIST is not under" in found.replaced["mnist"]
    assert not (tmp_path / "no data").exists()


def test_what_is_not_tried_is_told_with_its_reason(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is there: its cells are tried")
    axes = 'device = ["cpu", "cuda"]\nbatch_size = [1, 10]\n'
    text = TEXT.replace('device = "cpu"\n', "").replace("batch_size = 10\n", "") + axes
    found = smoked(tmp_path, text)
    assert found.exit_code == 0
    assert found.counts() == {"finite": 5, "not applicable": 1, "not tried": 6}
    ((name, reason),) = of(found, "not applicable").items()
    assert "bn: " in name
    assert "1 row" in reason
    assert {"torch sees no CUDA device" in message for message in of(found, "not tried").values()} == {True}
    assert found.text().count("\n- ") == 7


def test_a_cell_that_raises_or_dies_is_named_and_the_others_are_tried(tmp_path: Path) -> None:
    methods = '["vanilla", "faulty", { kind = "faulty", how = "exit" }, { kind = "faulty", how = "build" }, "bnp"]'
    text = OWN[: OWN.index("method =")] + f"method = {methods}\n"
    found = smoke_check(Options().selection(load_suite(write(tmp_path, text), allow_plugins=True)))
    assert [one.status for one in found.tried] == ["finite", "error", "error", "error", "finite"]
    assert found.exit_code == 3
    messages = list(of(found, "error").values())
    assert messages[0] == f"ArithmeticError: no such number (mine.py:{LINE})"
    assert "ended with exit code 7" in messages[1]
    assert messages[2].startswith("AttributeError")


def test_batches_that_an_epoch_has_not_are_the_first_again(tmp_path: Path) -> None:
    found = smoked(tmp_path, TEXT.replace("batch_size = 10", "batch_size = 30"))
    assert {one.status for one in found.tried} == {"finite"}
    assert all(len(set(one.losses)) == 3 for one in found.tried)


def test_the_parent_does_not_import_torch(tmp_path: Path) -> None:
    path = suite(tmp_path, TEXT)
    code = f"""
import sys
from bnpbench import cli
code = cli.run(["check", {str(path)!r}, "--smoke"])
from bnpbench.execution.children import stop_forkserver
stop_forkserver()
sys.exit("torch" if "torch" in sys.modules else code)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", LIGHT)
def test_a_shipped_suite_begins_with_numbers(name: str) -> None:
    found = smoke_check(Options().selection(load_suite(name)))
    assert found.exit_code == 0, found.text()
