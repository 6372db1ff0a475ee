"""Cost and gain of made-up results, against their means by hand and scipy's intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from bnpbench.records.rows import own_text
from bnpbench.report.answer import Answer, answers, gain_metric
from bnpbench.report.data import views
from bnpbench.report.query import Missing
from bnpbench.statistics.intervals import Estimate
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]
SECONDS = ([1.0, 1.02, 0.98], [1.1, 1.12, 1.08], [0.9, 0.91, 0.92])  # of vanilla, seed by seed


def of_seeds(made: Made, method: str, factors: Sequence[float], shares: Sequence[float], **columns: object) -> None:
    for seed, (factor, share, seconds) in enumerate(zip(factors, shares, SECONDS, strict=True), 1):
        rows = epochs([factor * s for s in seconds], [0.1, 0.2, share], steps=[10] * 3)
        made.cell(method, seed=seed, rows=rows, **columns)


def of(made: Made) -> dict[tuple[str, int], Answer]:
    (view,) = views(made.read())
    return {(answer.method, answer.batch_size): answer for answer in answers(view)}


def known(estimate: Estimate | Missing) -> Estimate:
    assert isinstance(estimate, Estimate)
    return estimate


def test_cost_and_gain_are_paired_over_seeds(make: Make) -> None:
    made = make()
    of_seeds(made, "vanilla", [1.0] * 3, [0.8, 0.82, 0.84])
    of_seeds(made, "bnp", [1.2, 1.25, 1.3], [0.86, 0.87, 0.91])
    answer = of(made)["bnp", 16]
    logs, gains = np.log([1.2, 1.25, 1.3]), np.array([0.06, 0.05, 0.07])
    cost, gain = known(answer.cost.estimate), known(answer.gain.estimate)
    assert cost.value == pytest.approx(math.exp(logs.mean()))
    low, high = np.exp(stats.t.interval(0.95, 2, loc=logs.mean(), scale=stats.sem(logs)))
    assert (cost.low, cost.high) == pytest.approx((low, high))
    assert (gain.low, gain.high) == pytest.approx(stats.t.interval(0.95, 2, loc=0.06, scale=stats.sem(gains)))
    assert (answer.cost.word, answer.gain.word) == ("dearer", "better")


@pytest.mark.parametrize(
    ("factors", "word"),
    [
        ([1.2, 1.25, 1.3], "dearer"),
        ([0.8, 0.79, 0.81], "cheaper"),
        ([1.001, 0.999, 1.002], "level"),
        ([0.9, 1.1, 1.02], "undecided"),
        ([1.0, 1.0, 1.0], "undecided"),  # a width of 0 decides nothing
    ],
)
def test_the_word_of_a_cost_follows_from_its_interval(make: Make, factors: list[float], word: str) -> None:
    made = make()
    of_seeds(made, "vanilla", [1.0] * 3, [0.8] * 3)
    of_seeds(made, "bnp", factors, [0.8] * 3)
    assert of(made)["bnp", 16].cost.word == word


@pytest.mark.parametrize(
    ("shares", "word"),
    [
        ([0.86, 0.87, 0.88], "better"),
        ([0.70, 0.71, 0.72], "worse"),
        ([0.801, 0.799, 0.8], "level"),
        ([0.7, 0.9, 0.8], "undecided"),
    ],
)
def test_the_word_of_a_gain_follows_from_its_interval(make: Make, shares: list[float], word: str) -> None:
    made = make()
    of_seeds(made, "vanilla", [1.0] * 3, [0.8] * 3)
    of_seeds(made, "bnp", [1.1, 1.2, 1.3], shares)
    assert of(made)["bnp", 16].gain.word == word


def test_equal_gains_are_known_to_one_example(make: Make) -> None:
    """Three seeds that all gain 2 of 100 examples: each accuracy is rounded to 1/100, a deviation of 1/100/sqrt(12)."""
    made = make()
    of_seeds(made, "vanilla", [1.0] * 3, [0.8] * 3, test_examples=100)
    of_seeds(made, "bnp", [1.1, 1.2, 1.3], [0.82] * 3, test_examples=100)
    gain = known(of(made)["bnp", 16].gain.estimate)
    half = stats.t.ppf(0.975, 2) * math.sqrt(2 / 12) / 100 / math.sqrt(3)
    assert (gain.low, gain.high) == pytest.approx((0.02 - half, 0.02 + half))


def test_equal_gains_of_unknown_examples_decide_nothing(make: Make) -> None:
    made = make()
    of_seeds(made, "vanilla", [1.0] * 3, [0.5] * 3)
    of_seeds(made, "bnp", [1.1, 1.2, 1.3], [0.75] * 3)
    answer = of(made)["bnp", 16]
    assert (answer.gain.word, known(answer.gain.estimate).reason) == ("undecided", "3 equal values")


def test_times_to_the_highest_target_that_the_baseline_reaches(make: Make) -> None:
    made = make()
    made.document["targets"] = [0.5, 0.85, 0.15]
    for seed, factor in enumerate((1.0, 1.1, 1.3), 1):
        made.cell("vanilla", seed=seed, rows=epochs([2.0, 2.0, 2.0], [0.1, 0.4, 0.6], steps=[10] * 3))
        made.cell("bnp", seed=seed, rows=epochs([factor, factor, factor], [0.1, 0.6, 0.9], steps=[10] * 3))
    answer = of(made)["bnp", 16]
    assert answer.target == 0.5
    assert known(answer.seconds.estimate).value == pytest.approx(math.exp(np.log([2 / 6, 2.2 / 6, 2.6 / 6]).mean()))
    assert known(answer.steps.estimate).value == pytest.approx(2 / 3)


def test_the_suite_names_what_a_method_buys_and_its_targets_are_of_that(make: Make) -> None:
    made = make()
    made.document |= {"metric": "test_bits_per_token", "targets": [3.0, 2.0, 1.5]}
    for seed, less in enumerate((0.0, 0.1, 0.2), 1):
        for method, bits in (("vanilla", [2.5, 2.2, 1.9]), ("bnp", [2.0, 1.8, 1.6 - less])):
            rows = epochs([1.0] * 3, [0.5] * 3, steps=[10] * 3, test_bits_per_token=bits)
            made.cell(method, seed=seed, rows=rows)
    answer = of(made)["bnp", 16]
    assert known(answer.gain.estimate).value == pytest.approx(0.4)
    assert answer.gain.word == "better"
    assert (answer.target, known(answer.steps.estimate).value) == (2.0, pytest.approx(1 / 3))


@pytest.mark.regression
@pytest.mark.parametrize(
    ("before", "after"),
    [([math.inf] * 3, [math.inf] * 3), ([0.8, 0.81, 0.82], [0.9, 0.91, math.inf]), ([math.inf] * 3, [0.9] * 3)],
)
def test_a_metric_that_is_not_finite_gains_nothing(make: Make, before: list[float], after: list[float]) -> None:
    """Infinite less infinite was shown, as nan."""
    made = make()
    made.document["metric"] = "score.own"
    for method, numbers in (("vanilla", before), ("bnp", after)):
        for seed, value in enumerate(numbers, 1):
            rows = epochs([1.0], [0.5], metrics=[own_text({"score.own": value})])
            made.cell(method, seed=seed, rows=rows)
    gain = of(made)["bnp", 16].gain
    assert (gain.estimate, gain.word) == (Missing("score.own is not finite"), "")


def test_a_metric_of_another_version_is_none(make: Make) -> None:
    made = make()
    made.document["metric"] = "charm"
    of_seeds(made, "vanilla", [1.0] * 3, [0.8, 0.81, 0.82])
    assert gain_metric(views(made.read())[0]) == "test_accuracy"


def test_the_suite_names_its_baseline(make: Make) -> None:
    made = make()
    made.document["baseline"] = "bn"
    for method in ("vanilla", "bn", "bnp"):
        of_seeds(made, method, [1.0, 1.1, 1.2] if method == "bnp" else [1.0] * 3, [0.8, 0.81, 0.82])
    assert {method for method, _ in of(made)} == {"vanilla", "bnp"}


def test_without_accuracies_the_loss_answers_and_less_is_better(make: Make) -> None:
    made = make()
    for method, losses in (("vanilla", [1.0, 1.1, 1.2]), ("bnp", [0.8, 0.9, 1.05])):
        for seed, loss in enumerate(losses, 1):
            made.cell(method, seed=seed, rows=epochs([1.0, 1.0], test_loss=[2.0, loss]))
    found = made.read()
    assert gain_metric(views(found)[0]) == "test_loss"
    answer = of(made)["bnp", 16]
    assert known(answer.gain.estimate).value == pytest.approx((0.2 + 0.2 + 0.15) / 3)
    assert answer.gain.word == "better"


def test_what_was_not_measured_says_why(make: Make) -> None:
    made = make()
    of_seeds(made, "vanilla", [1.0] * 3, [0.8] * 3)
    for seed in (1, 2, 3):
        made.cell("bn", seed=seed, status="not-applicable", message="a single row")
        made.cell("ln", 32, seed, rows=epochs([1.0, 1.0], [0.5, 0.6]))
    found = of(made)
    assert found["bn", 16].cost.estimate == Missing("not-applicable: a single row")
    assert found["ln", 32].cost.estimate == Missing("no baseline at this batch size")


def test_sides_apart_are_told_and_need_three_processes(make: Make) -> None:
    made = make()
    for seed in (1, 2):
        for method, seconds in (("vanilla", 1.0), ("bnp", 1.5)):
            made.cell(method, seed=seed, rows=epochs([seconds, 1.1 * seconds], [0.5, 0.6], steps=[9, 9]), alone=True)
    answer = of(made)["bnp", 16]
    assert (answer.cost.word, answer.cost.remark) == ("undecided", "not measured in turn")
    assert known(answer.cost.estimate).reason == "2 of 3 processes a side"


def test_a_shortened_run_says_so_and_knows_of_no_target_that_it_did_not_reach(make: Make) -> None:
    made = make()
    made.document["targets"] = [0.75, 0.85]
    for method, shares in (("vanilla", [0.8, 0.82, 0.84]), ("bnp", [0.7, 0.71, 0.72])):
        of_seeds(made, method, [1.0, 1.1, 1.2], shares, settings={"epochs": 3})
    whole = of(made)["bnp", 16]
    assert (whole.gain.remark, known(whole.seconds.estimate).value) == ("", math.inf)
    for cell in made.document["cells"]:
        cell["epochs"] = 15
    short = of(made)["bnp", 16]
    assert (short.gain.remark, short.gain.word) == ("after 3 of 15 epochs", "worse")
    assert short.seconds.estimate == Missing("shortened to 3 of 15 epochs (3 seeds)")


@pytest.mark.parametrize("metric", ["test_accuracy", "score.f1"])
def test_steps_to_a_target_are_known_to_an_epoch(make: Make, metric: str) -> None:
    """Two of three epochs with each seed: a step of one epoch has a deviation of 1/sqrt(12) on either side."""
    made = make()
    made.document |= {"targets": [0.5], "metric": metric}
    for seed in (1, 2, 3):
        for method, shares in (("vanilla", [0.1, 0.2, 0.6]), ("bnp", [0.1, 0.6, 0.7])):
            own = {"metrics": [own_text({metric: share}) for share in shares]} if metric == "score.f1" else {}
            made.cell(method, seed=seed, rows=epochs([1.0] * 3, () if own else shares, steps=[10] * 3, **own))
    steps = known(of(made)["bnp", 16].steps.estimate)
    half = stats.t.ppf(0.975, 2) * math.hypot(1 / 2, 1 / 3) / math.sqrt(12) / math.sqrt(3)
    assert (steps.low, steps.high) == pytest.approx((2 / 3 * math.exp(-half), 2 / 3 * math.exp(half)))


def test_seeds_that_are_left_where_others_diverged_decide_no_gain(make: Make) -> None:
    made = make()
    of_seeds(made, "vanilla", [1.0] * 3, [0.8, 0.81, 0.82])
    of_seeds(made, "bnp", [1.1, 1.2, 1.3], [0.9, 0.91, 0.93])
    for method, columns in (("vanilla", {"rows": epochs([1.0] * 3, [0.5] * 3)}), ("bnp", {"status": "diverged"})):
        made.cell(method, seed=4, **columns)
    answer = of(made)["bnp", 16]
    assert (answer.gain.word, answer.gain.remark) == ("undecided", "1 diverged")
    assert known(answer.gain.estimate).n == 3
