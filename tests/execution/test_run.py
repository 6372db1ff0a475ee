"""Suites run for real, in child processes, on data that are made."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from bnpbench import load_suite, read_results, run_suite
from bnpbench.errors import BnpbenchError, DataError, DeviceError, ResultsError, SuiteError
from bnpbench.execution import executor
from bnpbench.execution.progress import Progress
from bnpbench.measure.known import keep
from bnpbench.records.documents import Rates
from tests.support.command import SUITE, bnpbench, started, suite
from tests.support.inprocess import run_here
from tests.support.made_results import ENVIRONMENT
from tests.support.plugins import PLUGIN
from tests.support.timeless import timeless

SMALL = """
name = "small"
[train]
dataset = {{ kind = "synthetic", shape = [12], train = 203, test = 50, classes = 4 }}
network = {{ kind = "fc", hidden = [9, 8] }}
optimizer = {{ kind = "sgd", lr = 0.1 }}
epochs = 2
threads = 1
{train}
[sweep]
method = ["vanilla", "bn", "ln", "bnp"]
batch_size = [1, 10]
seed = [1, 2]
{rest}
"""
INTERLEAVED = '[measure]\ninterleave = ["method"]\nwarmup_epochs = 1\n'


def write(folder: Path, rest: str = "", train: str = "") -> Path:
    path = folder / "small.toml"
    path.write_text(SMALL.format(rest=rest, train=train))
    return path


@pytest.fixture(scope="module")
def interleaved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interleaved")
    run_suite(load_suite(write(folder, INTERLEAVED)), folder / "out")
    return folder / "out"


def test_every_cell_is_measured_or_not_applicable(interleaved: Path) -> None:
    cells = read_results(interleaved).cells
    assert len(cells) == 16
    single_bn = cells[(cells.method == "bn") & (cells.batch_size == 1)]
    assert set(single_bn.status) == {"not-applicable"}
    assert single_bn.message.str.contains("single row").all()
    assert set(cells.drop(single_bn.index).status) == {"ok"}


def test_rows_are_complete(interleaved: Path) -> None:
    results = read_results(interleaved)
    ok = results.cells[results.cells.status == "ok"]
    rows = results.epochs.merge(ok[["key", "batch_size"]], on="key")
    assert len(rows) == 2 * len(ok)
    assert (rows.examples == rows.steps * rows.batch_size).all()
    assert list(ok.last_batch) == [203 % int(n) for n in ok.batch_size]
    assert list(ok.train_examples) == [203 // int(n) * int(n) for n in ok.batch_size]
    for column in ("train_loss", "test_loss", "test_accuracy", "train_seconds", "step_seconds_median"):
        assert rows[column].notna().all()
    for column in ("flops_model", "flops_method_executed", "operators_per_step", "parameters", "torch", "bnpbench"):
        assert ok[column].notna().all()


def test_times_add_up(interleaved: Path) -> None:
    results = read_results(interleaved)
    parts = results.epochs.groupby("key")[["train_seconds", "evaluation_seconds", "other_seconds"]].sum().sum(axis=1)
    cells = results.cells[results.cells.status == "ok"].set_index("key")
    told = parts + cells.setup_seconds + cells.warmup_seconds + cells.compile_seconds
    assert (told <= 1.0001 * cells.wall_seconds).all()
    assert (cells.wall_seconds - told <= 0.1 * cells.wall_seconds + 0.01).all()  # another process may come between


def test_methods_take_turns(interleaved: Path) -> None:
    results = read_results(interleaved)
    cells = results.cells.set_index("key")
    block = results.epochs.merge(cells[["label", "batch_size", "seed"]], left_on="key", right_index=True)
    block = block[(block.batch_size == 10) & (block.seed == 1)].sort_values("turn")
    assert list(block.label) == ["vanilla", "bn", "ln", "bnp", "bnp", "ln", "bn", "vanilla"]
    assert block.block.nunique() == 1


def test_a_second_run_measures_nothing(interleaved: Path, tmp_path: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in interleaved.rglob("*.parquet")}
    run_suite(load_suite(write(tmp_path, INTERLEAVED)), interleaved)
    assert {p: p.stat().st_mtime_ns for p in interleaved.rglob("*.parquet")} == before


def test_interleaving_and_jobs_change_no_result(interleaved: Path, tmp_path: Path) -> None:
    alone = run_suite(load_suite(write(tmp_path)), tmp_path / "alone", jobs=2)
    results = read_results(interleaved)
    assert (set(results.cells.jobs), set(alone.cells.jobs)) == ({1}, {2})
    drop = {"jobs", "block", "turn", "suite", "environment", "log", "commit", "dirty"}
    for ours, theirs in ((results.epochs, alone.epochs), (results.cells, alone.cells)):
        ours, theirs = (timeless(t, *drop) for t in (ours, theirs))
        pd.testing.assert_frame_equal(ours, theirs)


def test_suite_json_names_every_cell_even_when_some_run(tmp_path: Path) -> None:
    results = run_here(load_suite(write(tmp_path)), tmp_path / "out", only=("batch_size=10", "method=bnp"), seeds=1)
    assert list(results.cells.label) == ["bnp"]
    document = json.loads((tmp_path / "out" / "small" / "suite.json").read_text())
    assert len(document["cells"]) == 16


def test_shards_share_out_the_blocks(tmp_path: Path) -> None:
    suite = load_suite(write(tmp_path))
    found: list[str] = []
    for place in (1, 2, 3):
        found += list(run_here(suite, tmp_path / str(place), shard=(place, 3)).cells.key)
    assert len(found) == len(set(found)) == 16


def test_divergence_ends_a_cell_with_the_epochs_so_far(tmp_path: Path) -> None:
    path = write(tmp_path, '[[override]]\nwhen = { method = "vanilla" }\nset = { optimizer.lr = 1e30 }\n')
    results = run_here(load_suite(path), tmp_path / "out", only=("batch_size=10",), seeds=1)
    cells = results.cells.set_index("label")
    assert cells.status["vanilla"] == "diverged"
    assert cells.status["bnp"] == "ok"
    assert len(results.epochs[results.epochs.key == cells.key["vanilla"]]) == 1


OTHERS = """
name = "others"
plugins = ["mine.py"]
[train]
dataset = { kind = "synthetic", shape = [3, 32, 32], train = 8, test = 4, classes = 3 }
network = { kind = "torchvision", name = "shufflenet_v2_x0_5" }
optimizer = { kind = "sgd", lr = 0.01 }
batch_size = 4
epochs = 1
threads = 1
device = "cpu"
[sweep]
method = [
  "native", { kind = "gn", channels_per_group = 16 }, { kind = "faulty", how = "exit" }, "faulty", "bnp+native"
]
[measure]
interleave = ["method"]
"""


def test_a_cell_that_does_not_fit_a_network_of_others_stops_no_other(tmp_path: Path) -> None:
    """One whose method cannot serve the sites, one that fails in its first step, and one whose process dies there."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    done = bnpbench("run", suite(tmp_path, OTHERS, "others.toml"), "--allow-plugins", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    results = read_results(tmp_path / "results")
    cells = results.cells.set_index("label")
    assert dict(cells.status) == {
        "native": "ok",
        "gn(channels_per_group=16)": "not-applicable",
        "faulty(how=exit)": "crashed",
        "faulty": "error",
        "bnp+native": "ok",
    }
    assert re.match(
        r"\d+ of 56 sites: group normalization behind layer '\S+': 16 channels a group",
        cells.message["gn(channels_per_group=16)"],
    )
    assert "exit code 7" in cells.message["faulty(how=exit)"]
    assert "no such number" in cells.message["faulty"]
    assert dict(cells.sites_served)["bnp+native"] == 56
    for key in cells.key[cells.status == "ok"]:
        assert results.epochs[results.epochs.key == key].train_loss.between(0, 10).tolist() == [True]
    for word in ("not-applicable", "crashed", "bnp+native"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("limits", "stopped_by"),
    [('interval = "99%"', "interval"), ('interval = "0.0001%"\nmax_epochs = 9', "max_epochs")],
)
def test_an_interval_decides_how_long_a_block_is(tmp_path: Path, limits: str, stopped_by: str) -> None:
    suite = load_suite(write(tmp_path, INTERLEAVED + limits))
    results = run_here(suite, tmp_path / "out", only=("batch_size=10", "method=vanilla,bnp"), seeds=1)
    assert set(results.cells.stopped_by) == {stopped_by}
    epochs = set(results.epochs.groupby("key").size())
    assert epochs == {9} if stopped_by == "max_epochs" else min(epochs) >= 6


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"device": "cuda:9"}, DeviceError),
        ({"device": "tpu"}, DeviceError),
        ({"only": ("method=nosuch",)}, SuiteError),
    ],
)
def test_what_cannot_run_is_said_before_anything_runs(
    tmp_path: Path, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        run_suite(load_suite(write(tmp_path)), tmp_path / "out", **options)
    assert not list(tmp_path.rglob("*.parquet"))


def test_graphs_are_refused_on_the_cpu(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="graphed"):
        run_suite(load_suite(write(tmp_path, train='engine = "graphed"')), tmp_path / "out", device="cpu")


def test_tf32_is_refused_on_the_cpu(tmp_path: Path) -> None:
    suite = load_suite(write(tmp_path, 'precision = ["float32", "tf32"]\n'))
    with pytest.raises(DeviceError, match=r'precision = "tf32".*--only precision=float32 '):
        run_suite(suite, tmp_path / "out", device="cpu")
    assert not list(tmp_path.rglob("*.parquet"))


def test_precision_is_recorded_and_float32_is_none_of_the_key(tmp_path: Path) -> None:
    path = write(tmp_path, 'precision = ["float32", "bf16"]\n')
    cells = run_here(load_suite(path), tmp_path / "out", only=("method=bn", "batch_size=10"), seeds=1).cells
    assert list(cells.sort_values("precision").precision) == ["bf16", "float32"]
    assert set(cells.status) == {"ok"}
    assert ["precision" in json.loads(text) for text in cells.sort_values("precision").settings] == [True, False]


def test_jobs_are_refused_where_times_are_compared(tmp_path: Path) -> None:
    with pytest.raises(BnpbenchError, match="--jobs 2"):
        run_suite(load_suite(write(tmp_path, INTERLEAVED)), tmp_path / "out", jobs=2)


def test_missing_data_offline_name_the_remedies(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(
        path.read_text().replace('{ kind = "synthetic", shape = [12], train = 203, test = 50, classes = 4 }', '"mnist"')
    )
    with pytest.raises(DataError, match=r"(?s)--data-dir.*BNPBENCH_DATA.*bnpbench data get mnist"):
        run_suite(load_suite(path), tmp_path / "out", data_dir=tmp_path / "none", offline=True)


@pytest.mark.parametrize("fresh", [False, True])
def test_results_of_a_newer_bnpbench_are_refused_before_anything_runs(
    fresh: bool, interleaved: Path, tmp_path: Path
) -> None:
    """They were measured again and written over without a word."""
    out = tmp_path / "out"
    shutil.copytree(interleaved, out)
    path = sorted(out.glob("*/*/cells/*.parquet"))[-1]
    with pq.ParquetFile(path) as file:
        table, metadata = file.read(), {k.decode(): v.decode() for k, v in file.metadata.metadata.items()}
    with pq.ParquetWriter(path, table.schema.remove_metadata(), store_schema=False) as writer:
        writer.write_table(table.replace_schema_metadata(None))
        writer.add_key_value_metadata({**metadata, "schema_version": "2"})
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    with pytest.raises(ResultsError, match="schema_version 2: a newer bnpbench wrote it, this one reads 1"):
        run_suite(load_suite(write(tmp_path, INTERLEAVED)), out, fresh=fresh)
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_a_suite_document_of_a_newer_bnpbench_is_refused_before_anything_runs(
    interleaved: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(interleaved, out)
    (path,) = out.glob("*/suite.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2}))
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    with pytest.raises(ResultsError, match="schema_version 2: a newer bnpbench wrote it, this one writes 1"):
        run_suite(load_suite(write(tmp_path, INTERLEAVED)), out, fresh=True)
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


IN_TURN = SUITE.replace("seed = [1, 2]\n", "") + '[measure]\ninterleave = ["method"]\n'


class Stopped(Progress):
    """Ctrl-C at the first epoch."""

    def epoch(self, *_: Any, **__: Any) -> None:
        raise KeyboardInterrupt


def measured(out: Path) -> dict[str, list[Any]]:
    cells = read_results(out).cells.sort_values("label")
    return {name: cells[name].tolist() for name in ("label", "block", "status", "finished")}


@pytest.mark.regression
def test_a_part_of_a_finished_block_is_finished(tmp_path: Path) -> None:
    """Its block has another id: it was measured again, and then the whole block once more."""
    whole = load_suite(suite(tmp_path, IN_TURN))
    run_here(whole, tmp_path / "out")
    before = measured(tmp_path / "out")
    run_here(whole, tmp_path / "out", only=("method=bnp",))
    assert measured(tmp_path / "out") == before


@pytest.mark.regression
@pytest.mark.parametrize("change", ["fresh", "another method"])
def test_a_run_that_is_stopped_keeps_what_was_measured(tmp_path: Path, change: str) -> None:
    """It wrote "interrupted" over cells that an earlier run had measured."""
    run_here(load_suite(suite(tmp_path, IN_TURN)), tmp_path / "out")
    before = measured(tmp_path / "out")
    text = IN_TURN if change == "fresh" else IN_TURN.replace('"bnp"]', '"bnp", "ln"]')
    with pytest.raises(KeyboardInterrupt):
        run_here(load_suite(suite(tmp_path, text)), tmp_path / "out", Stopped(), fresh=change == "fresh")
    assert measured(tmp_path / "out") == before


MNIST = SUITE.replace(
    'dataset = { kind = "synthetic", shape = [12], train = 203, test = 50, classes = 4 }\n', ""
).replace("seed = [1, 2]", 'dataset = ["digits", "mnist"]')


@pytest.mark.regression
def test_every_suite_is_checked_before_the_first_runs(tmp_path: Path) -> None:
    """The second one of a command was looked at when the first had run."""
    suite(tmp_path, SUITE, "first.toml")
    suite(tmp_path, SUITE.replace('"tiny"', '"second"').replace("threads = 1", 'device = "cuda"'), "second.toml")
    done = bnpbench("run", "first.toml", "second.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert 'device = "cuda"' in done.stderr
    assert not (tmp_path / "results" / "tiny").exists()


@pytest.mark.regression
def test_data_that_are_not_asked_for_are_not_missed(tmp_path: Path) -> None:
    """Data that `--only` leaves out were missed."""
    both = load_suite(suite(tmp_path, MNIST))
    options: dict[str, Any] = {"offline": True, "data_dir": tmp_path / "empty"}
    with pytest.raises(DataError, match="mnist"):
        run_here(both, tmp_path / "out", only=("dataset=mnist",), **options)
    assert set(run_here(both, tmp_path / "out", only=("dataset=digits",), **options).cells.status) == {"ok"}


def test_a_local_run_does_not_import_ray(tmp_path: Path) -> None:
    code = (
        "import sys; from bnpbench import load_suite, run_suite;"
        f"run_suite(load_suite({str(suite(tmp_path))!r}), 'out', seeds=1, only=('method=vanilla',));"
        "assert 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_three_shards_as_three_processes_give_the_results_of_one_run(tmp_path: Path) -> None:
    """Two share a folder, as the tasks of a batch queue's array on a shared disk do; one has its own, as a CI job."""
    path = suite(tmp_path, SUITE)
    outs = {place: tmp_path / ("own" if place == 3 else "shared") for place in (1, 2, 3)}
    with ExitStack() as stack:
        for shard in [
            stack.enter_context(started("run", path, "--shard", f"{i}/3", "--out", out, "--quiet", cwd=tmp_path))
            for i, out in outs.items()
        ]:
            _, errors = shard.communicate(timeout=200)
            assert shard.returncode == 0, errors
    assert bnpbench("run", path, "--out", tmp_path / "one", "--quiet", cwd=tmp_path).returncode == 0
    ours, theirs = read_results(tmp_path / "shared", tmp_path / "own"), read_results(tmp_path / "one")
    assert not ours.damaged
    for a, b in ((ours.cells, theirs.cells), (ours.epochs, theirs.epochs)):
        assert len(b) >= 4
        assert timeless(a).equals(timeless(b))
    assert {len(read_results(out).cells) for out in outs.values()} == {1, 3}
    for sides, counts in (
        (("one", "shared", "--new", "own"), "4 cells in both, 0 only in the base, 0 only in the new results"),
        (("shared", "one", "--base", "own"), "4 cells in both, 0 only in the base, 0 only in the new results"),
        (("one", "shared"), "3 cells in both, 1 only in the base, 0 only in the new results"),
    ):
        compared = bnpbench("compare", *sides, cwd=tmp_path)
        assert compared.returncode == 0, compared.stderr
        assert counts in compared.stdout


def no_child(*_: object) -> None:
    raise AssertionError("a child is started")


def test_a_run_with_nothing_to_do_starts_no_child(
    interleaved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results and environment are found as those that the children of the first run wrote."""
    out = tmp_path / "out"
    shutil.copytree(interleaved, out)
    (path,) = out.glob("*/*/environment.json")
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    monkeypatch.setattr(executor, "start_forkserver", no_child)
    monkeypatch.setattr(executor, "ask", no_child)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    suite = load_suite(write(tmp_path, INTERLEAVED))
    assert len(run_suite(suite, out).cells) == 16
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before
    rates = Rates(measured="2026-01-02", libraries=[], rates=[])
    keep(path.parent.name, rates)  # as ``env --measure`` does
    run_suite(suite, out)
    assert json.loads(path.read_text()) == {**json.loads(before[path]), "rates": rates.document()}
    with pytest.raises(AssertionError, match="a child is started"):
        run_suite(suite, out, fresh=True)


class Told(Progress):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def start(self, *_: Any) -> None:
        self.said.append("start")

    def stop(self) -> None:
        self.said.append("stop")

    def skipped(self, *_: Any) -> None:
        self.said.append("skipped")


def test_of_finals_that_are_still_to_be_trained_a_run_says_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trials are finished, which is told when it is known that nothing is left, or by who trains the finals."""
    (tmp_path / "tuned.toml").write_text(TUNED)
    suite, out = load_suite(tmp_path / "tuned.toml"), tmp_path / "out"
    run_here(suite, out)
    monkeypatch.setattr(executor, "start_forkserver", no_child)
    monkeypatch.setattr(executor, "known", lambda gpu: ENVIRONMENT)
    monkeypatch.setattr(executor, "usable_cores", lambda environment: [0])
    everything, trials = Told(), Told()
    run_suite(suite, out, everything)
    rounds = ["start", *["skipped"] * 2, "stop", "start", "skipped", "stop"]
    assert everything.said == rounds
    cells = read_results(out).cells
    (final,) = cells[cells.role == "final"].key
    (part,) = out.glob(f"*/*/cells/{final}.parquet")
    part.unlink()
    with pytest.raises(AssertionError, match="a child is started"):
        run_suite(suite, out, trials)
    assert trials.said == []


TUNED = (
    SUITE.replace('method = ["vanilla", "bnp"]', 'method = ["vanilla"]\noptimizer.lr = [0.1, 0.05]')
    .replace("seed = [1, 2]", "seed = [1]")
    .replace("threads = 1", "threads = 1\nvalidation = 0.2")
    + '[select]\nover = "optimizer.lr"\n'
)
