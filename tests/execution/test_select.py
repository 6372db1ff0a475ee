"""``[select]``, up to the report: trials choose a value, finals are trained with it on the whole training set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bnpbench import Results, load_suite, read_results
from bnpbench.errors import SuiteError
from bnpbench.execution.progress import Progress
from bnpbench.report import render, verdicts
from tests.support.inprocess import run_here

SUITE = """
name = "tuned"
[train]
dataset = { kind = "synthetic", shape = [12], train = 300, test = 60, classes = 4 }
network = { kind = "fc", hidden = [9, 8] }
optimizer = { kind = "sgd", lr = 0.1 }
epochs = 3
threads = 1
validation = 0.2
[sweep]
batch_size = [1, 10]
method = ["vanilla", "bn"]
seed = [1, 2]
optimizer.lr = [1e-6, 0.1, 0.05]
[select]
over = "optimizer.lr"
[[reference]]
cell = { method = "bn", batch_size = 10 }
metric = "optimizer.lr"
value = 0.3
source = "a paper"
[[claim]]
says = "BN is not worse"
left = { method = "bn" }
right = { method = "vanilla" }
where = { batch_size = 10 }
metric = "test_accuracy"
difference = { at_least = -1.0 }
"""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "tuned.toml").write_text(SUITE)
    run_here(load_suite(folder / "tuned.toml"), folder / "out")
    return folder


def rate(settings: str) -> float:
    return float(json.loads(settings)["optimizer"]["lr"])


def last(results: Results, column: str) -> dict[str, float]:
    return results.epochs.sort_values("epoch").groupby("key")[column].last().to_dict()


def test_the_best_trial_of_each_method_and_batch_size_is_trained_on_everything(tuned: Path) -> None:
    results = read_results(tuned / "out")
    scores = last(results, "validation_accuracy")
    trials, finals = (results.cells[results.cells.role == role] for role in ("trial", "final"))
    assert len(trials) == 2 * 2 * 3
    assert set(trials.seed) == {1}
    for (method, size), rows in trials.groupby(["method", "batch_size"]):
        mine = finals[(finals.method == method) & (finals.batch_size == size)]
        if (method, size) == ("bn", 1):
            assert set(rows.status) == {"not-applicable"}
            assert mine.empty
            continue
        best = max(rows.itertuples(), key=lambda row: scores[row.key])
        assert sorted(mine.seed) == [1, 2]
        assert {rate(text) for text in mine.settings} == {rate(best.settings)} != {1e-6}
        assert {json.loads(text).get("validation", 0.0) for text in mine.settings} == {0.0}
        assert set(mine.train_examples) == {300}


def test_several_seeds_choose_by_their_mean(tmp_path: Path) -> None:
    suite = SUITE.replace('over = "optimizer.lr"', 'over = "optimizer.lr"\nseeds = 2')
    (tmp_path / "tuned.toml").write_text(suite)
    loaded = load_suite(tmp_path / "tuned.toml")
    trials = loaded.cells(device="cpu", threads=1, only=["method=bn", "batch_size=10"])
    rates = {cell.key: cell.settings.optimizer.lr for cell in trials}
    assert sorted((cell.settings.seed, rates[cell.key]) for cell in trials) == [
        (seed, lr) for seed in (1, 2) for lr in (1e-6, 0.05, 0.1)
    ]
    found = {(1, 0.1): 0.9, (2, 0.1): 0.1, (1, 0.05): 0.6, (2, 0.05): 0.5, (1, 1e-6): 0.99}  # the last has one alone
    scores = {cell.key: found.get((cell.settings.seed, rates[cell.key])) for cell in trials}
    finals = loaded.finals(scores, device="cpu", threads=1)
    assert [(cell.settings.seed, cell.settings.optimizer.lr) for cell in finals] == [(1, 0.05), (2, 0.05)]


def test_more_seeds_than_there_are_to_choose_by(tmp_path: Path) -> None:
    (tmp_path / "tuned.toml").write_text(SUITE.replace('over = "optimizer.lr"', 'over = "optimizer.lr"\nseeds = 3'))
    with pytest.raises(SuiteError, match=r"select\.seeds: 3 seeds to try each value on; the sweep has 2"):
        load_suite(tmp_path / "tuned.toml")


def test_a_second_run_measures_nothing(tuned: Path) -> None:
    parts = {path: path.stat().st_mtime_ns for path in (tuned / "out").rglob("*.parquet")}
    run_here(load_suite(tuned / "tuned.toml"), tuned / "out")
    assert {path: path.stat().st_mtime_ns for path in (tuned / "out").rglob("*.parquet")} == parts


def test_the_report_tells_what_was_chosen_and_claims_look_at_finals(tuned: Path) -> None:
    results = read_results(tuned / "out")
    text = render(results)
    assert "## Best optimizer.lr" in text
    row = next(line for line in text.splitlines() if line.startswith("| bn") and "0.3 (a paper)" in line)
    assert "| 10 " in row
    assert [verdict.outcome for verdict in verdicts(results)] == ["holds"]


def test_finals_of_other_rates_take_turns_and_are_found_again(tmp_path: Path) -> None:
    text = SUITE.replace("[1, 10]", "[10]") + '[measure]\ninterleave = ["method"]\n'
    text += '[[override]]\nwhen = { method = "bn" }\nset = { optimizer.lr = [1e-6, 0.2, 0.4] }\n'
    (tmp_path / "tuned.toml").write_text(text)
    first = run_here(load_suite(tmp_path / "tuned.toml"), tmp_path / "out")
    chosen = first.cells[first.cells.role == "final"]
    assert chosen.groupby("block").key.count().to_list() == [2, 2]
    assert len({rate(settings) for settings in chosen.settings}) == 2
    assert first.epochs[first.epochs.key.isin(chosen.key)].turn.notna().all()
    planned = {cell.key: cell.block for cell in first.suites["tuned"].cells}
    assert dict(zip(first.cells.key, first.cells.block, strict=True)) == planned
    second = run_here(load_suite(tmp_path / "tuned.toml"), tmp_path / "out")
    assert second.cells.finished.to_list() == first.cells.finished.to_list()
    assert "[" in render(second).partition("Ratio to vanilla")[2]


def test_a_final_that_comes_late_is_measured_together_with_those_of_its_block(tmp_path: Path) -> None:
    """Only cells that took turns have ratios of times."""
    text = SUITE.replace("[1, 10]", "[10]").replace("seed = [1, 2]", "seed = [1]")
    (tmp_path / "tuned.toml").write_text(text + '[measure]\ninterleave = ["method"]\n')
    suite, found = load_suite(tmp_path / "tuned.toml"), []
    for only in (("method=vanilla",), (), ()):
        cells = run_here(suite, tmp_path / "out", only=only).cells
        found.append(cells[cells.role == "final"].set_index("method")[["block", "finished"]])
    assert list(found[0].index) == ["vanilla"]
    assert found[1].block.nunique() == 1
    assert found[1].finished["vanilla"] > found[0].finished["vanilla"]
    assert found[2].equals(found[1])


def test_shards_run_trials_only(tuned: Path, tmp_path: Path) -> None:
    run_here(load_suite(tuned / "tuned.toml"), tmp_path / "out", shard=(1, 2))
    assert set(read_results(tmp_path / "out").cells.role) == {"trial"}


def test_finals_wait_for_every_trial_of_their_group(tuned: Path, tmp_path: Path) -> None:
    """A crashed or missing trial was passed over, and a later run that had it chose other finals."""
    suite = load_suite(tuned / "tuned.toml")
    told: list[str] = []

    class Told(Progress):
        def note(self, text: str) -> None:
            told.append(text)

    results = run_here(suite, tmp_path / "out", Told(), only=("optimizer.lr=0.05",))
    assert set(results.cells.role) == {"trial"}
    assert "8 of 12 trials are not finished" in " ".join(told)
    text = render(results)
    assert "Where a trial is not finished nothing is chosen" in text
    assert "the finals wait: 2 of 3 trials not measured" in text
    resumed, whole = run_here(suite, tmp_path / "out"), read_results(tuned / "out")
    assert set(resumed.cells.key) == set(whole.cells.key)
    assert last(resumed, "test_accuracy") == last(whole, "test_accuracy")
    assert "the finals wait" not in render(resumed)


def test_a_trial_that_is_finished_without_a_number_lets_finals_begin(tuned: Path) -> None:
    suite = load_suite(tuned / "tuned.toml")
    trials = suite.cells(device="cpu", threads=1)
    scores: dict[str, float | None] = {cell.key: cell.settings.optimizer.lr for cell in trials}
    finals = suite.finals(scores, device="cpu", threads=1)
    assert {cell.settings.optimizer.lr for cell in finals} == {0.1}
    best = [cell.key for cell in trials if cell.settings.optimizer.lr == 0.1]
    diverged = scores | {best[0]: None}
    assert len(suite.finals(diverged, device="cpu", threads=1)) == len(finals)
    assert {cell.settings.optimizer.lr for cell in suite.finals(diverged, device="cpu", threads=1)} == {0.1, 0.05}
    crashed = {key: score for key, score in scores.items() if key != best[0]}
    assert len(suite.finals(crashed, device="cpu", threads=1)) == len(finals) - 2  # its own, of two seeds


def test_two_axes_are_chosen_from_trained_and_told(tmp_path: Path) -> None:
    text = SUITE.replace('method = ["vanilla", "bn"]', 'method = ["vanilla", "bnp"]\n"method.eps1" = [0.01, 0.1]')
    text = text.replace('over = "optimizer.lr"', 'over = ["optimizer.lr", "method.eps1"]').split("[[reference]]")[0]
    (tmp_path / "tuned.toml").write_text(text.replace("batch_size = [1, 10]", "batch_size = [10]"))
    run_here(load_suite(tmp_path / "tuned.toml"), tmp_path / "out")
    results = read_results(tmp_path / "out")
    roles = results.cells.groupby(["role", "label"]).size().to_dict()
    assert roles == {("trial", "vanilla"): 3, ("trial", "bnp"): 6, ("final", "vanilla"): 2, ("final", "bnp"): 2}
    told = render(results)
    assert "## Best optimizer.lr and method.eps1" in told
    assert "neighbours of method.eps1 lose" in told
