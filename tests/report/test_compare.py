"""Two runs beside each other."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bnpbench.errors import BnpbenchError, NothingToCompare
from bnpbench.measure.measurement import MEASUREMENT, STEPS
from bnpbench.report import Comparison, compare
from bnpbench.results import Results, read_results
from tests.support.made_results import HARDWARE, Made, epochs

Make = Callable[..., Made]
OTHER_HARDWARE = {**HARDWARE, "cpu": "Another CPU"}
LEVELS = (1 / 1.01, 1.0, 1.01)  # of three processes; their geometric mean is 1


def measured(
    make: Make,
    folder: str,
    slower: float = 1.0,
    *,
    noise: float = 0.01,
    methods: Sequence[str] = ("vanilla", "bnp"),
    seeds: Sequence[int] = (1, 2, 3),
    accuracy: float | None = 0.9,
    hardware: Any = HARDWARE,
    software: Any = None,
    only: str | None = None,
    **columns: Any,
) -> Results:
    """Twelve noisy epochs of each method and seed; ``slower`` than 1 s, all of them or only one method."""
    random = np.random.default_rng(list(folder.encode()))
    made = make(folder, hardware=hardware, software=software or {"torch": "2.14.1"})
    for seed in seeds:
        for method in methods:
            factor = slower if only in (None, method) else 1.0
            seconds = factor * random.normal(1.0, noise, 12)
            counts = {"flops_model": 100, "operators_per_step": 10, **columns}
            made.cell(method, seed=seed, rows=epochs(seconds.tolist(), [accuracy] * 12), **counts)
    return made.read()


def judged(comparison: Comparison, what: str) -> set[str]:
    return {change.judgement for change in comparison.changes if change.what == what}


@pytest.mark.parametrize(
    ("slower", "noise", "exit_code"),
    [(1.0, 0.01, 0), (1.03, 0.01, 0), (1.03, 0.2, 0), (1.10, 0.01, 1), (1.06, 0.2, 0), (0.8, 0.01, 0)],
)
@pytest.mark.parametrize("methods", [("bnp",), ("vanilla", "bnp")])
def test_a_slow_down_needs_a_ratio_over_the_threshold_and_an_interval_that_excludes_it(
    make: Make, methods: Sequence[str], slower: float, noise: float, exit_code: int
) -> None:
    sides = {"noise": noise, "methods": methods, "only": "bnp"}
    comparison = compare(measured(make, "base", **sides), measured(make, "new", slower, **sides))
    assert comparison.exit_code == exit_code
    alone = len(methods) == 1
    expected = "worse" if exit_code else "better" if slower == 0.8 else "within" if noise < 0.1 else "undecided"
    assert judged(comparison, "seconds per epoch") == {expected if alone else "not judged"}
    assert judged(comparison, "ratio to vanilla") == (set() if alone else {expected})


def test_what_all_methods_share_or_the_machine_is_told_apart_from_a_method(make: Make) -> None:
    comparison = compare(measured(make, "base"), measured(make, "new", 1.2))
    assert comparison.exit_code == 0
    assert judged(comparison, "ratio to vanilla") == {"within"}
    assert any("everything became slower, by a factor of 1.20" in note for note in comparison.notes)
    one = compare(measured(make, "base2"), measured(make, "new2", 1.2, only="bnp"))
    assert one.exit_code == 1
    assert not any("everything became slower" in note for note in one.notes)


def test_the_ratio_is_to_the_vanilla_of_the_same_batch_size(make: Make) -> None:
    """Batch sizes may take turns too: then a block has a vanilla of each."""
    seconds = {("vanilla", 16): 10.0, ("vanilla", 256): 1.0, ("bnp", 256): 1.1}
    sides = []
    for folder in ("base", "new"):
        made = make(folder, software={"torch": "2.14.1"})
        for (method, size), each in seconds.items():
            made.cell(method, size, rows=epochs([each] * 12), block="0123456789ab")
        sides.append(made.read())
    (found,) = [c for c in compare(*sides).changes if (c.what, c.method) == ("ratio to vanilla", "bnp")]
    assert (found.base, found.new) == ("1.1000", "1.1000")


def test_the_threshold_can_be_chosen(make: Make) -> None:
    base, new = measured(make, "base"), measured(make, "new", 1.1, only="bnp")
    fine = compare(base, new, max_slowdown=0.2)
    assert fine.exit_code == 0
    assert "no time was judged" not in fine.render()
    assert compare(base, new, max_slowdown=0.02).exit_code == 1


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_processes_a_side_are_undecided(make: Make, seeds: int) -> None:
    """However many epochs they have: from one process to the next a time moves by more."""
    some = {"seeds": range(1, seeds + 1), "methods": ("bnp",)}
    comparison = compare(measured(make, "base", **some), measured(make, "new", 2.0, **some))
    (found,) = [change for change in comparison.changes if change.what == "seconds per epoch"]
    assert (found.judgement, found.remark) == ("undecided", f"{seeds} of 3 processes a side")
    assert (comparison.exit_code, comparison.undecided) == (0, True)
    text = comparison.render()
    assert text.startswith("# Comparison: no regression, 1 undecided\n")
    assert "## Undecided" in text
    assert "no time was judged" not in text


def test_what_is_undecided_says_which_slow_down_would_have_been_seen(make: Make) -> None:
    """The one from which on the interval, as wide as it is, would lie above the threshold."""
    sides = {"base": np.array([0.9, 1.0, 1.1]), "new": np.array([0.95, 1.03, 1.2])}
    results = []
    for folder, levels in sides.items():
        made = make(folder)
        for seed, level in enumerate(levels.tolist(), 1):
            made.cell("bnp", seed=seed, rows=epochs([level * e for e in (0.99, 1.0, 1.01)]))
        results.append(made.read())
    (found,) = [change for change in compare(*results).changes if change.what == "seconds per epoch"]
    logs = [np.log(side) for side in sides.values()]
    low, high = np.exp(stats.ttest_ind(logs[1], logs[0], equal_var=False).confidence_interval(0.95))
    ratio = math.exp(logs[1].mean() - logs[0].mean())
    assert found.change is not None
    assert (found.change.value, found.change.low, found.change.high) == pytest.approx((ratio, low, high))
    assert found.judgement == "undecided"
    seen = 1.05 * ratio / low  # such a ratio over the width of the interval below it is 1.05
    assert found.remark == f"a slow-down would have been seen from {100 * (seen - 1):.0f}% on"


def test_base_new_and_their_ratio_are_of_one_estimator(make: Make) -> None:
    """Each side is the geometric mean over processes of each one's median, whatever the number of its epochs."""
    results = []
    for folder, processes in (("base", [[1.0, 1.1, 9.0], [2.0], [4.0] * 9]), ("new", [[1.2] * 5, [2.2, 2.6], [4.4]])):
        made = make(folder)
        for seed, seconds in enumerate(processes, 1):
            made.cell("bnp", seed=seed, rows=epochs(seconds))
        results.append(made.read())
    (found,) = [change for change in compare(*results).changes if change.what == "seconds per epoch"]
    base, new = (1.1 * 2.0 * 4.0) ** (1 / 3), (1.2 * 2.4 * 4.4) ** (1 / 3)
    assert (found.base, found.new) == (f"{base:.4f}", f"{new:.4f}")
    assert found.change is not None
    assert found.change.value == pytest.approx(new / base)


def test_rows_are_told_apart_by_the_settings_that_vary(make: Make) -> None:
    """Two data sets in one suite: each has rows of its own, and its name stands there."""
    results = []
    for folder in ("base", "new"):
        made = make(folder)
        for kind, seconds in (("digits", 1.0), ("mnist", 5.0)):
            for seed, level in enumerate(LEVELS, 1):
                made.cell("bnp", seed=seed, rows=epochs([seconds * level] * 3), settings={"dataset": {"kind": kind}})
        results.append(made.read())
    found = [change for change in compare(*results).changes if change.what == "seconds per epoch"]
    assert [(change.group, change.base) for change in found] == [
        ("digits, 3 seeds", "1.0000"),
        ("mnist, 3 seeds", "5.0000"),
    ]


def test_suites_with_a_plugin_are_matched_across_its_edits(make: Make) -> None:
    results = []
    for folder, digest in (("base", "0" * 64), ("new", "1" * 64)):
        made = make(folder)
        for seed, level in enumerate(LEVELS, 1):
            made.cell("bnp", seed=seed, rows=epochs([level] * 3), settings={"plugins": {"mine.py": digest}})
        results.append(made.read())
    comparison = compare(*results)
    assert judged(comparison, "seconds per epoch") == {"within"}
    assert (len(comparison.shared), comparison.only_left, comparison.only_right) == (3, (), ())
    told = "the suite's plugins differ: their cells are matched by all other settings"
    assert told in comparison.notes
    assert told not in compare(results[0], results[0]).notes


@pytest.mark.parametrize(
    "column", ["flops_model", "flops_method_counted", "flops_method_predicted", "operators_per_step"]
)
@pytest.mark.parametrize(
    ("before", "after", "judgement"),
    [(100, 99, "better"), (100, 101, "worse"), (100, None, "worse"), (None, 100, "not judged")],
)
def test_counts_are_exact(make: Make, column: str, before: int | None, after: int | None, judgement: str) -> None:
    base, new = measured(make, "base", **{column: before}), measured(make, "new", **{column: after})
    comparison = compare(base, new)
    assert comparison.exit_code == (judgement == "worse")
    assert {c.judgement for c in comparison.changes if c.quantity == column} == {judgement}
    told = {"worse": "# Comparison: 6 regressions\n", "better": "# Comparison: no regression, 6 improvements\n"}
    assert told.get(judgement, "# Comparison: no regression\n") in comparison.render()


def test_operators_are_exact_only_under_one_torch(make: Make) -> None:
    base = measured(make, "base")
    new = measured(make, "new", software={"torch": "2.15.0"}, operators_per_step=11)
    comparison = compare(base, new)
    assert comparison.exit_code == 0
    assert any("software differs: torch: 2.14.1 and 2.15.0" in note for note in comparison.notes)
    assert judged(comparison, "ratio to vanilla") == {"within"}  # the same hardware: compared
    assert compare(base, measured(make, "other", software={"torch": "2.15.0"}, flops_model=101)).exit_code == 1


@pytest.mark.parametrize(
    ("accuracy", "judgement"),
    [(0.9, "same"), (0.885, "within"), (0.87, "worse"), (0.93, "better"), (math.nan, "worse"), (None, "worse")],
)
def test_accuracy_of_cpu_runs_stays_within_the_tolerance(make: Make, accuracy: float | None, judgement: str) -> None:
    comparison = compare(measured(make, "base"), measured(make, "new", accuracy=accuracy))
    assert judged(comparison, "accuracy") == {judgement}
    assert comparison.exit_code == (judgement == "worse")


@pytest.mark.parametrize("side", ["base", "new"])
@pytest.mark.parametrize("methods", [("bnp",), ("vanilla", "bnp")])
def test_times_that_are_no_numbers_are_not_passed_over(make: Make, methods: Sequence[str], side: str) -> None:
    sides = {name: measured(make, name, math.nan if name == side else 1.0, methods=methods) for name in ("base", "new")}
    comparison = compare(sides["base"], sides["new"])
    assert judged(comparison, "seconds per epoch") == {"not judged"}
    assert comparison.exit_code == 0
    text = comparison.render()
    assert comparison.undecided
    assert text.startswith("# Comparison: no regression found; ")
    assert "warning: no time was judged" in text
    assert f"no time in the {'base' if side == 'base' else 'new results'}" in text


def test_a_seed_without_times_is_told_of(make: Make) -> None:
    sides = []
    for folder, second in (("base", 1.0), ("new", math.nan)):
        made = make(folder)
        for seed, seconds in (*enumerate(LEVELS, 1), (4, second)):
            made.cell("bnp", seed=seed, rows=epochs([seconds] * 12, [0.5] * 12))
        sides.append(made.read())
    (found,) = [change for change in compare(*sides).changes if change.what == "seconds per epoch"]
    assert found.judgement == "within"
    assert found.remark == "3 of 4 seeds: no time in the new results"


def test_accuracy_of_gpu_runs_is_shown_and_not_judged(make: Make) -> None:
    comparison = compare(measured(make, "base", device="cuda"), measured(make, "new", accuracy=0.1, device="cuda"))
    assert judged(comparison, "accuracy") == {"not judged"}
    assert comparison.exit_code == 0


@pytest.mark.parametrize(
    ("before", "after", "judgement"),
    [
        ("ok", "crashed", "worse"),
        ("oom", "ok", "better"),
        ("diverged", "oom", "worse"),
        ("oom", "diverged", "better"),
        ("ok", "diverged", "worse"),
        ("oom", "crashed", "differs"),
    ],
)
def test_another_status_is_a_change(make: Make, before: str, after: str, judgement: str) -> None:
    comparison = compare(measured(make, "base", status=before), measured(make, "new", status=after))
    assert judged(comparison, "status") == {judgement}
    assert comparison.exit_code == (judgement == "worse")


def test_other_hardware_is_refused_with_the_fields(make: Make) -> None:
    base, new = measured(make, "base"), measured(make, "new", hardware=OTHER_HARDWARE)
    with pytest.raises(NothingToCompare, match=r"cpu: Made-up CPU and Another CPU") as error:
        compare(base, new)
    assert error.value.exit_code == 4


def test_across_machines_only_what_does_not_depend_on_them_is_compared(make: Make) -> None:
    base = measured(make, "base")
    new = measured(make, "new", 1.5, hardware=OTHER_HARDWARE, only="bnp")
    comparison = compare(base, new, across_machines=True)
    assert {change.what for change in comparison.changes} == {"counts", "accuracy", "ratio to vanilla"}
    assert judged(comparison, "ratio to vanilla") == {"not judged"}
    assert comparison.exit_code == 0
    dearer = measured(make, "other", hardware=OTHER_HARDWARE, flops_model=101)
    assert compare(base, dearer, across_machines=True).exit_code == 1


def test_a_clock_is_not_another_machine(make: Make) -> None:
    base, new = measured(make, "base", clock_mhz_before=2000.0), measured(make, "new", clock_mhz_before=2100.0)
    assert compare(base, new).exit_code == 0


def test_an_unknown_machine_is_another_machine(make: Make) -> None:
    with pytest.raises(NothingToCompare, match="unknown"):
        compare(measured(make, "base", hardware=None), measured(make, "new", hardware=None, software={"torch": "3"}))


def test_cells_of_one_side_are_listed(make: Make) -> None:
    base, new = measured(make, "base", methods=("vanilla", "bn")), measured(make, "new", methods=("vanilla", "bnp"))
    comparison = compare(base, new)
    assert (len(comparison.shared), len(comparison.only_left), len(comparison.only_right)) == (3, 3, 3)
    assert comparison.only_left[0].startswith("made: bn, N = 16, seed 1 (")
    assert comparison.outcome == "same"


@pytest.mark.regression
def test_cells_of_one_side_that_are_called_alike_are_told_apart(make: Make) -> None:
    """As the finals of a ``[select]`` are that chose another value later."""
    base, new = make("base"), make("new")
    for made, rates in ((base, (0.1, 0.2)), (new, (0.3,))):
        for rate in rates:
            made.cell("vanilla", rows=epochs([1.0] * 3), settings={"optimizer": {"kind": "sgd", "lr": rate}})
    comparison = compare(base.read(), new.read())
    names = [name.rpartition(" (")[0] for name in comparison.only_left]
    assert names == [f"made: vanilla, N = 16, optimizer.lr = {rate}, seed 1" for rate in (0.1, 0.2)]


def test_no_baseline_is_an_outcome_and_not_a_success(make: Make) -> None:
    new = measured(make, "new")
    empty = make("base")
    empty.cell("bnp")
    for base in (None, empty.read()):
        comparison = compare(base, new)
        assert (comparison.outcome, comparison.exit_code) == ("no baseline", 4)
        assert "# Comparison: no baseline" in comparison.render()


def test_nothing_shared_is_not_a_success(make: Make) -> None:
    comparison = compare(measured(make, "base", methods=("bn",)), measured(make, "new", methods=("bnp",)))
    assert (comparison.outcome, comparison.exit_code) == ("nothing shared", 4)


def test_nothing_measured_is_an_error(make: Make) -> None:
    empty = make("new")
    empty.cell("bnp")
    with pytest.raises(NothingToCompare, match="nothing was measured"):
        compare(measured(make, "base"), empty.read())


def test_of_several_environments_the_same_one_is_the_partner(make: Make) -> None:
    measured(make, "base", software={"torch": "2.13.0"}, operators_per_step=1)
    base = measured(make, "base")
    assert len(base.environments) == 2
    comparison = compare(base, measured(make, "new"))
    assert comparison.exit_code == 0
    assert not any("software" in note for note in comparison.notes)


@pytest.mark.parametrize("format", ["markdown", "csv", "json"])
def test_every_format_shows_the_regressions(make: Make, snapshot: Callable[[str, str], None], format: str) -> None:  # noqa: A002
    base = make("base")
    new = make("new", software={"torch": "2.14.1", "python": "3.12"})
    for made, factor, flops in ((base, 1.0, 100), (new, 1.25, 101)):
        for seed, level in enumerate(LEVELS, 1):
            for method, times in (("vanilla", 1.0), ("bnp", factor * level)):
                made.cell(method, seed=seed, rows=epochs([2.0 * times] * 6, [0.5] * 6), flops_model=flops)
        made.cell("bn|x", rows=epochs([1.0] * 6), commit=f"c{flops}")
    comparison = compare(base.read(), new.read())
    text = comparison.render(format)
    if format == "json":
        assert json.loads(text)[0]["sections"][0]["title"] == "Comparison: 7 regressions, 1 undecided"
    elif format == "csv":
        ratios = [row for row in csv.DictReader(io.StringIO(text)) if row["table"] == "ratio to vanilla"]
        assert [float(row["value"]) for row in ratios if row["method"] == "bnp"] == pytest.approx([1.25])
    snapshot(f"comparison.{ {'markdown': 'md'}.get(format, format) }", text)
    with pytest.raises(BnpbenchError):
        comparison.render("xml")


# Where an interval decides how many epochs a run has, accuracy was compared at other epochs of each run.


def growing(folder: Path, count: int, *, worse: float = 0.0) -> Results:
    """An accuracy that grows by 0.05 an epoch."""
    made = Made(folder)
    made.cell("bnp", rows=epochs([1.0] * count, [0.05 * epoch - worse for epoch in range(1, count + 1)]))
    return made.read()


@pytest.mark.regression
@pytest.mark.parametrize("counts", [(7, 10), (10, 7)])
def test_the_last_epoch_of_both_is_compared(tmp_path: Path, counts: tuple[int, int]) -> None:
    base, new = (growing(tmp_path / str(count), count) for count in counts)
    (change,) = [change for change in compare(base, new).changes if change.what == "accuracy"]
    assert (change.judgement, change.base, change.new) == ("same", "0.3500", "0.3500")
    assert change.remark == f"at epoch 7, of {counts[0]} and {counts[1]}"


@pytest.mark.regression
def test_a_worse_run_differs_at_the_last_epoch_of_both(tmp_path: Path) -> None:
    comparison = compare(growing(tmp_path / "base", 7), growing(tmp_path / "new", 10, worse=0.05))
    assert comparison.exit_code == 1


# A suite measured on other hardware was left out of a comparison, and nothing said so beside "no regression".


def two_suites(folder: Path, cpu: str) -> Results:
    for name, hardware in (("here", HARDWARE), ("there", {**HARDWARE, "cpu": cpu})):
        made = Made(folder, name, hardware=hardware)
        made.cell("bnp", rows=epochs([1.0] * 6, [0.5] * 6))
        made.read()
    return read_results(folder)


@pytest.mark.regression
def test_what_was_refused_is_told(tmp_path: Path) -> None:
    base, new = two_suites(tmp_path / "base", "X"), two_suites(tmp_path / "new", "Y")
    warning = (
        "warning: suite there was measured on other hardware (cpu: X and Y): not compared; --across-machines compares "
        "what does not depend on it"
    )
    assert [note for note in compare(base, new).notes if "warning" in note] == [warning]
    assert warning in compare(base, new).render()
    assert warning not in compare(base, new, across_machines=True).notes
    assert warning not in compare(base, base).notes


@pytest.mark.regression
def test_it_is_told_where_nothing_else_is_shared_too(tmp_path: Path) -> None:
    base, new = two_suites(tmp_path / "base", "X"), Made(tmp_path / "new", "here")
    new.cell("bn", rows=epochs([1.0] * 6, [0.5] * 6))
    new.read()
    two_suites(tmp_path / "other", "Y")
    comparison = compare(base, read_results(tmp_path / "new", tmp_path / "other" / "there"))
    assert comparison.outcome == "nothing shared"
    assert any("suite there" in note for note in comparison.notes)


# Two ways of measuring were compared as if they were one.
UNKNOWN = "this version does not know what changed between them"


def by(folder: Path, measurement: Any, seconds: float = 1.0, accuracy: float = 0.5) -> Results:
    made = Made(folder)
    made.environment["measurement"] = measurement
    for seed, level in enumerate(LEVELS, 1):
        made.cell("bnp", seed=seed, rows=epochs([level * seconds] * 6, [accuracy] * 6), device="cpu")
    return made.read()


@pytest.mark.regression
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (4, 6, ["measurement differs: 4 and 6; what changed leaves seconds alone"]),
        (6, 5, ["measurement differs: 6 and 5; what changed leaves seconds alone"]),
        (3, 4, [f"measurement differs: 3 and 4; times are not judged: {STEPS[4].what}"]),
        (4, 2, [f"measurement differs: 4 and 2; times are not judged: {STEPS[3].what}; {STEPS[4].what}"]),
        (None, 5, [f"measurement differs: none and 5; times are not judged: {UNKNOWN}"]),
        (5, 99, [f"measurement differs: 5 and 99; times are not judged: {UNKNOWN}"]),
        ("7", 7, [f"measurement differs: 7 and 7; times are not judged: {UNKNOWN}"]),
        (5.0, 7, [f"measurement differs: 5.0 and 7; times are not judged: {UNKNOWN}"]),
        (True, [7], [f"measurement differs: true and [7]; times are not judged: {UNKNOWN}"]),
        (5, 5, []),
        (99, 99, []),
    ],
)
def test_another_way_of_measuring_is_told(tmp_path: Path, before: Any, after: Any, expected: list[str]) -> None:
    comparison = compare(by(tmp_path / "base", before), by(tmp_path / "new", after))
    assert [note for note in comparison.notes if "measurement" in note] == expected
    assert comparison.exit_code == 0


@pytest.mark.regression
@pytest.mark.parametrize(
    ("before", "after", "judged"), [(4, 6, True), (5, 5, True), (3, 4, False), (6, 7, False), (None, 7, False)]
)
def test_seconds_are_judged_only_where_nothing_moved_them(
    tmp_path: Path, before: Any, after: Any, judged: bool
) -> None:
    """Twice as slow, and less accurate; the accuracy counts whatever was measured how."""
    base, new = by(tmp_path / "base", before), by(tmp_path / "new", after, seconds=2.0, accuracy=0.4)
    comparison = compare(base, new)
    found = {change.what: (change.judgement, change.remark) for change in comparison.changes}
    assert found["seconds per epoch"] == (("worse", "") if judged else ("not judged", "measured otherwise"))
    assert found["accuracy"] == ("worse", "")
    assert comparison.exit_code == 1
    assert comparison.undecided != judged
    told = comparison.render()
    assert ("; 1 of 1 time could not be judged\n" in told) != judged
    assert ("measured otherwise: times are shown and not judged" in told) != judged
    assert ("warning: no time was judged" in told) != judged


@pytest.mark.regression
@pytest.mark.parametrize(("blind", "words"), [((), ""), (("bn",), "1 of 2 times"), (("bn", "bnp"), "2 of 2 times")])
def test_times_that_could_not_be_judged_are_counted_beside_those_that_could(
    make: Make, blind: Sequence[str], words: str
) -> None:
    """A slow-down in them would be overlooked."""
    sides = []
    for folder in ("base", "new"):
        made = make(folder)
        for method in ("bn", "bnp"):
            for seed, level in enumerate(LEVELS, 1):
                time = math.nan if method in blind and folder == "new" else level
                made.cell(method, seed=seed, rows=epochs([time] * 6, [0.5] * 6))
        sides.append(made.read())
    comparison = compare(*sides)
    assert (comparison.exit_code, comparison.undecided) == (0, bool(blind))
    heading = f"no regression found; {words} could not be judged" if blind else "no regression"
    assert comparison.render().startswith(f"# Comparison: {heading}\n")


@pytest.mark.regression
def test_seconds_in_turn_are_judged_where_vanilla_has_no_times(make: Make) -> None:
    """There is no ratio then that could be judged instead of them."""
    sides = []
    for folder, factor in (("base", 1.0), ("new", 2.0)):
        made = make(folder)
        for seed, level in enumerate(LEVELS, 1):
            for method, time in (("vanilla", math.nan), ("bnp", factor * level)):
                made.cell(method, seed=seed, rows=epochs([time] * 6, [0.5] * 6))
        sides.append(made.read())
    found = [(change.what, change.judgement) for change in compare(*sides).changes if change.method == "bnp"]
    assert ("seconds per epoch", "worse") in found


@pytest.mark.regression
def test_every_value_is_told_of() -> None:
    """Who raises MEASUREMENT says what changed, and whether seconds are comparable across it."""
    assert list(STEPS) == list(range(2, MEASUREMENT + 1))


@pytest.mark.regression
def test_runs_of_other_settings_say_which(make: Make) -> None:
    """Of two lengths, or with ``--set``, each cell stood alone without a word why."""
    sides = []
    for folder, count, rate in (("base", 4, 0.1), ("new", 15, 0.2)):
        made = make(folder)
        for method in ("vanilla", "bnp"):
            settings = {"epochs": count, "optimizer": {"kind": "sgd", "lr": rate}}
            made.cell(method, rows=epochs([1.0] * count), settings=settings)
        sides.append(made.read())
    comparison = compare(*sides)
    assert comparison.outcome == "nothing shared"
    assert comparison.notes == (
        "no cell was measured in both",
        "not compared, for a setting differs (2 cells): epochs: 4 and 15",
        "not compared, for a setting differs (2 cells): optimizer.lr: 0.1 and 0.2",
    )
