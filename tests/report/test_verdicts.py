"""Verdicts from made-up data: every outcome, infinities, missing and undefined numbers."""

from __future__ import annotations

import math
import statistics as plain_statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bnpbench.report import claims_exit_code, render, verdicts
from bnpbench.report.verdicts import Verdict, decide, seeds_needed
from bnpbench.statistics.intervals import Estimate, mean_interval
from tests.support.made_results import Made, epochs

INFINITY = math.inf
NOISE = [1.00, 1.02, 0.98, 1.01, 0.99, 1.00, 1.03, 0.97]
Make = Callable[..., Made]


def only(made: Made) -> Verdict:
    (verdict,) = verdicts(made.read())
    return verdict


@pytest.mark.parametrize(
    ("low", "high", "bounds", "outcome"),
    [
        (1.0, 1.1, (-INFINITY, 1.1), "holds"),
        (1.0, 1.1, (-INFINITY, 1.05), "undecided"),
        (1.0, 1.1, (-INFINITY, 0.99), "fails"),
        (1.0, 1.1, (1.0, INFINITY), "holds"),
        (1.0, 1.1, (1.11, INFINITY), "fails"),
        (-0.02, 0.02, (-0.01, 0.01), "undecided"),
        (-0.005, 0.005, (-0.01, 0.01), "holds"),
        (0.02, 0.03, (-0.01, 0.01), "fails"),
        (INFINITY, INFINITY, (2.0, INFINITY), "holds"),
        (INFINITY, INFINITY, (-INFINITY, 2.0), "fails"),
        (0.0, 0.0, (-INFINITY, 0.0), "holds"),
    ],
)
def test_an_interval_inside_holds_outside_fails_else_undecided(
    low: float, high: float, bounds: tuple[float, float], outcome: str
) -> None:
    assert decide(Estimate(low, 3, low, high), bounds)[0] == outcome


def test_a_time_ratio_comes_from_pairs_of_epochs(make: Make) -> None:
    """The drift of a factor 3 over the run hits both alike, so the ratio does not see it."""
    drift = np.linspace(1, 3, 8)
    made = make()
    bn = made.cell("bn", rows=epochs(drift.tolist()))
    bnp = made.cell("bnp", rows=epochs((1.2 * drift * NOISE).tolist()))
    made.claim("train_seconds", "ratio", [bnp], [bn], at_least=1.1, at_most=1.3, at="all")
    verdict = only(made)
    assert (verdict.outcome, verdict.unit) == ("holds", "pairs")
    assert verdict.estimate is not None
    assert verdict.estimate.value == pytest.approx(1.2 * plain_statistics.median(NOISE))
    assert verdict.estimate.n == 8


def test_a_time_difference_comes_from_the_same_pairs(make: Make) -> None:
    made = make()
    bn, bnp = (
        made.cell("bn", rows=epochs([1, 2, 3, 4, 5, 6])),
        made.cell("bnp", rows=epochs([1.48, 2.49, 3.5, 4.5, 5.51, 6.52])),
    )
    made.claim("train_seconds", "difference", [bnp], [bn], at_most=0.55, at="all")
    verdict = only(made)
    assert verdict.estimate is not None
    assert (verdict.outcome, verdict.estimate.value) == ("holds", pytest.approx(0.5))  # unpaired its interval is ±2


def test_cells_that_took_no_turns_are_compared_each_on_its_own(make: Make) -> None:
    """Welch's t over three processes a side, whose medians are 1, 1.02 and .98 times their level."""
    made = make()
    levels = np.array([1.0, 1.02, 0.98])
    bn, bnp = (
        [
            made.cell(m, seed=s, rows=epochs([factor * level * e for e in NOISE]), alone=True)
            for s, level in enumerate(levels, 1)
        ]
        for m, factor in (("bn", 1.0), ("bnp", 1.2))
    )
    made.claim("train_seconds", "ratio", bnp, bn, at_most=1.5, at="all")
    verdict = only(made)
    assert (verdict.outcome, verdict.unit, verdict.reason) == ("holds", "epochs", "not measured in turn")
    sides = np.log(1.2 * levels), np.log(levels)
    expected = np.exp(stats.ttest_ind(*sides, equal_var=False).confidence_interval(0.95))
    assert verdict.estimate is not None
    assert (verdict.estimate.low, verdict.estimate.high) == pytest.approx(tuple(expected))
    assert (verdict.estimate.n, verdict.estimate.processes) == (24, 3)


@pytest.mark.parametrize("processes", [1, 2])
def test_fewer_than_three_processes_a_side_that_took_no_turns_are_undecided(make: Make, processes: int) -> None:
    made = make()
    bn, bnp = (
        [made.cell(m, seed=s, rows=epochs([s * e for e in NOISE]), alone=True) for s in range(1, processes + 1)]
        for m in ("bn", "bnp")
    )
    made.claim("train_seconds", "ratio", bnp, bn, at_most=50, at="all")
    verdict = only(made)
    assert (verdict.outcome, verdict.reason) == (
        "undecided",
        f"{processes} of 3 processes a side; not measured in turn",
    )
    assert f"{processes} of 3 processes a side; raise the number of seeds." in render(made.read())


def test_pairs_of_several_processes_weigh_the_same(make: Make) -> None:
    """Three processes of 8, 2 and 5 epochs: Student's t over the logarithms of each one's median ratio."""
    made = make()
    ratios = [[1.2 * e for e in NOISE], [1.25, 1.35], [1.1, 1.1, 1.1, 5.0, 0.1]]
    bn = [made.cell("bn", seed=s, rows=epochs([1.0] * len(cell))) for s, cell in enumerate(ratios, 1)]
    bnp = [made.cell("bnp", seed=s, rows=epochs(cell)) for s, cell in enumerate(ratios, 1)]
    made.claim("train_seconds", "ratio", bnp, bn, at_most=1.5, at="all")
    verdict = only(made)
    logs = np.log([1.2, math.sqrt(1.25 * 1.35), 1.1])
    expected = np.exp(stats.t.interval(0.95, 2, loc=logs.mean(), scale=stats.sem(logs)))
    assert verdict.estimate is not None
    assert (verdict.estimate.low, verdict.estimate.high) == pytest.approx(tuple(expected))
    assert (verdict.outcome, verdict.estimate.n, verdict.estimate.processes) == ("holds", 15, 3)


def test_one_pair_is_undecided(make: Make) -> None:
    made = make()
    bn, bnp = made.cell("bn", rows=epochs([1.0])), made.cell("bnp", rows=epochs([1.1]))
    made.claim("train_seconds", "ratio", [bnp], [bn], at_most=2, at="all")
    assert (only(made).outcome, only(made).reason) == ("undecided", "n = 1")


@pytest.mark.parametrize("count", [2, 5])
def test_few_pairs_have_students_interval_of_their_logarithms(make: Make, count: int) -> None:
    made = make()
    bn, bnp = made.cell("bn", rows=epochs([1.0] * count)), made.cell("bnp", rows=epochs(NOISE[:count]))
    made.claim("train_seconds", "ratio", [bnp], [bn], at_most=2, at="all")
    verdict, logs = only(made), np.log(NOISE[:count])
    assert verdict.estimate is not None
    assert (verdict.estimate.low, verdict.estimate.high) == pytest.approx(
        tuple(np.exp(stats.t.interval(0.95, count - 1, loc=logs.mean(), scale=stats.sem(logs))))
    )
    assert verdict.outcome == "holds"


def test_equal_times_decide_nothing(make: Make) -> None:
    made = make()
    bn, bnp = made.cell("bn", rows=epochs([1.0] * 8)), made.cell("bnp", rows=epochs([1.0] * 8))
    made.claim("train_seconds", "ratio", [bnp], [bn], at_most=2, at="all")
    assert (only(made).outcome, only(made).reason) == ("undecided", "8 equal values")


def test_equal_seeds_decide_nothing_unless_their_rounding_is_known(make: Make) -> None:
    """Three times 2 of 100 examples more: each share is rounded to 1/100, with a deviation of 1/100/sqrt(12)."""
    for examples, outcome in ((None, "undecided"), (100, "undecided"), (10_000, "holds")):
        made = make(f"results{examples}")
        bn, bnp = (
            [made.cell(m, seed=s, rows=epochs([1.0], [share]), test_examples=examples) for s in (1, 2, 3)]
            for m, share in (("bn", 0.5), ("bnp", 0.52))
        )
        made.claim("test_accuracy", "difference", bnp, bn, at_least=0.015)
        verdict = only(made)
        assert verdict.estimate is not None
        assert verdict.outcome == outcome
        if examples is None:
            assert (verdict.estimate.low, verdict.reason) == (None, "3 equal values")
            continue
        half = stats.t.ppf(0.975, 2) * math.sqrt(2 / 12) / examples / math.sqrt(3)
        assert (verdict.estimate.low, verdict.estimate.high) == pytest.approx((0.02 - half, 0.02 + half))


@pytest.mark.parametrize(
    ("question", "half"), [("difference", math.sqrt(2)), ("ratio", math.sqrt(1 / 3**2 + 1 / 2**2))]
)
def test_epochs_to_a_target_are_rounded_to_whole_ones(make: Make, question: str, half: float) -> None:
    """BN needs three epochs with every seed and BNP two."""
    made = make()
    shares = {"bn": [0.1, 0.2, 0.6], "bnp": [0.1, 0.7, 0.8]}
    keys = {m: [made.cell(m, seed=s, rows=epochs([1.0] * 3, of)) for s in (1, 2, 3)] for m, of in shares.items()}
    made.claim("epochs_to", question, keys["bnp"], keys["bn"], target=0.5, at_most=10)
    verdict = only(made)
    half *= stats.t.ppf(0.975, 2) / math.sqrt(12) / math.sqrt(3)
    expected = (-1 - half, -1 + half) if question == "difference" else (2 / 3 * math.exp(-half), 2 / 3 * math.exp(half))
    assert verdict.estimate is not None
    assert (verdict.estimate.low, verdict.estimate.high) == pytest.approx(expected)


@pytest.mark.parametrize("seeds", [1, 3])
def test_what_a_run_reached_is_a_fact_of_it(make: Make, seeds: int) -> None:
    made = make()
    keys = [made.cell("bnp", seed=s, rows=epochs([1.0], [0.9])) for s in range(1, seeds + 1)]
    made.claim("reached", "value", keys, target=0.5, at_least=1)
    assert only(made).outcome == "holds"


def shortened(made: Made, method: str, seed: int = 1, shares: Sequence[float] = (0.1, 0.3, 0.5, 0.6)) -> str:
    """A cell of 15 epochs of which four were run."""
    rows = epochs([e * seed for e in NOISE[:4]], shares, test_loss=[1.0] * 4)
    key = made.cell(method, seed=seed, rows=rows, settings={"epochs": 4}, flops_model=7)
    made.document["cells"][-1]["epochs"] = 15
    return key


NOTHING = "shortened to 4 of 15 epochs (3 seeds)"


@pytest.mark.parametrize(
    ("claim", "outcome", "reason"),
    [
        ({"metric": "test_accuracy", "at": "last"}, "no data", NOTHING),
        ({"metric": "test_accuracy", "at": "best"}, "no data", NOTHING),
        ({"metric": "test_loss", "at": "area"}, "no data", NOTHING),
        ({"metric": "test_accuracy", "at": {"epoch": 5}}, "no data", NOTHING),
        ({"metric": "train_seconds", "at": "last"}, "no data", NOTHING),
        ({"metric": "train_seconds", "at": {"epochs": [2, 9]}}, "no data", NOTHING),
        ({"metric": "reached", "target": 0.7}, "no data", NOTHING),
        ({"metric": "epochs_to", "target": 0.7}, "no data", NOTHING),
        ({"metric": "reached", "target": 0.5}, "holds", "4 of 15 epochs"),
        ({"metric": "epochs_to", "target": 0.5}, "holds", "4 of 15 epochs"),
        ({"metric": "train_seconds", "at": "all"}, "holds", "4 of 15 epochs"),
        ({"metric": "train_seconds", "at": {"epochs": [2, 4]}}, "holds", "4 of 15 epochs"),
        ({"metric": "flops_model"}, "holds", "4 of 15 epochs"),
    ],
)
def test_a_shortened_run_answers_nothing_about_its_end(
    make: Make, claim: dict[str, Any], outcome: str, reason: str
) -> None:
    made = make()
    keys = [shortened(made, "bnp", seed) for seed in (1, 2, 3)]
    made.claim(claim["metric"], "value", keys, at_least=0, **{k: v for k, v in claim.items() if k != "metric"})
    verdict = only(made)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert claims_exit_code([verdict]) == (4 if outcome == "no data" else 0)


def test_seeds_are_paired(make: Make) -> None:
    """Seeds differ by .2, the methods by .01 to .02: only the paired differences show it."""
    made = make()
    low, gains = [0.3, 0.5, 0.7], [0.010, 0.015, 0.020]
    bn = [made.cell("bn", seed=s, rows=epochs([1], [a])) for s, a in enumerate(low, 1)]
    bnp = [
        made.cell("bnp", seed=s, rows=epochs([1], [a + g])) for s, (a, g) in enumerate(zip(low, gains, strict=True), 1)
    ]
    made.claim("test_accuracy", "difference", bnp, bn, at_least=0.0)
    made.claim("test_accuracy", "ratio", bnp, bn, at_most=2)
    difference, ratio = verdicts(made.read())
    expected = stats.t.interval(0.95, 2, loc=np.mean(gains), scale=stats.sem(gains))
    assert difference.estimate is not None
    assert (difference.estimate.low, difference.estimate.high) == pytest.approx(expected)
    assert (difference.outcome, difference.estimate.n, difference.unit) == ("holds", 3, "seeds")
    logs = np.log([(a + g) / a for a, g in zip(low, gains, strict=True)])
    assert ratio.estimate is not None
    assert ratio.estimate.low == pytest.approx(math.exp(stats.t.interval(0.95, 2, np.mean(logs), stats.sem(logs))[0]))


def test_one_seed_is_undecided(make: Make) -> None:
    made = make()
    made.claim("test_accuracy", "value", [made.cell("bnp", rows=epochs([1], [0.5]))], at_least=0.1)
    verdict = only(made)
    assert (verdict.outcome, verdict.reason) == ("undecided", "n = 1")


def test_a_count_has_no_spread_even_of_one_seed(make: Make) -> None:
    made = make()
    made.claim("flops_method_counted", "value", [made.cell("bnp", rows=epochs([1]), flops_method_counted=7)], at_most=7)
    assert only(made).outcome == "holds"


@pytest.mark.parametrize(
    ("at", "metric", "expected"),
    [
        ("last", "test_accuracy", 0.3),
        ("best", "test_accuracy", 0.6),
        ("area", "test_accuracy", 0.4),
        ({"epoch": 2}, "test_accuracy", 0.6),
        ({"epochs": [2, 3]}, "test_accuracy", 0.45),
        ("best", "test_loss", 1.0),
        ("last", "test_loss", 3.0),
    ],
)
def test_at_picks_the_moment(make: Make, at: Any, metric: str, expected: float) -> None:
    made = make()
    """The mean of three seeds whose numbers lie 1 % apart."""
    made = make()
    shares, losses = np.array([0.3, 0.6, 0.3]), np.array([2.0, 1.0, 3.0])
    keys = [
        made.cell("bnp", seed=s, rows=epochs([1, 1, 1], (f * shares).tolist(), test_loss=(f * losses).tolist()))
        for s, f in enumerate((0.99, 1.0, 1.01), 1)
    ]
    made.claim(metric, "value", keys, at=at, at_most=10)
    verdict = only(made)
    assert verdict.estimate is not None
    assert verdict.estimate.value == pytest.approx(expected)
    assert verdict.outcome == "holds"


def test_overfitting_is_the_last_over_the_best_of_one_method(make: Make) -> None:
    made = make()
    keys = [made.cell("bnp", seed=s, rows=epochs([1, 1], test_loss=[1.0, 1.5 + s / 100])) for s in (1, 2, 3)]
    made.claim("test_loss", "ratio", keys, keys, left_at="last", right_at="best", at_least=1.02)
    verdict = only(made)
    assert verdict.outcome == "holds"
    assert verdict.question == "ratio of test_loss, bnp / bnp (the best epoch)"


def test_an_epoch_that_was_not_run_is_no_data(make: Make) -> None:
    made = make()
    made.claim("test_accuracy", "value", [made.cell("bnp", rows=epochs([1], [0.5]))], at={"epoch": 5}, at_most=1)
    assert only(made).reason == "no test_accuracy at epoch 5"


def test_the_time_to_a_target_ends_with_the_first_epoch_that_reaches_it(make: Make) -> None:
    made = make()
    rows = epochs([1.0, 2.0, 4.0], [0.1, 0.5, 0.4])
    keys = [made.cell("bnp", seed=seed, rows=rows) for seed in (1, 2)]
    for metric in ("seconds_to", "epochs_to", "reached"):
        made.claim(metric, "value", keys, target=0.5, at_least=0)
    assert [v.estimate.value for v in verdicts(made.read()) if v.estimate] == [3.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("left", "right", "question", "bounds", "outcome"),
    [
        ([9, 9], [None, None], "difference", {"at_most": 0.0}, "undecided: right"),  # -inf
        ([None, None], [9, 9], "difference", {"at_most": 0.0}, "fails: left"),  # +inf
        ([9, 9], [None, None], "difference", {"at_least": 0.0}, "fails: right"),
        ([None, None], [9, 9], "ratio", {"at_least": 2.0}, "undecided: left"),  # inf
        ([None, None], [9, 9], "ratio", {"at_most": 2.0}, "fails: left"),
        ([9, 9], [None, None], "ratio", {"at_most": 0.5}, "undecided: right"),  # 0
        ([None, 9], [9, 9], "ratio", {"at_most": 0.5}, "undecided"),
        ([None, None], [None, None], "ratio", {"at_most": 0.5}, "no data"),
        ([None, None], None, "value", {"at_least": 100.0}, "undecided: left"),
        ([None, None], None, "value", {"at_most": 100.0}, "fails: left"),
        ([None, 9], None, "value", {"at_least": 0.0}, "undecided"),
    ],
)
@pytest.mark.parametrize("metric", ["seconds_to", "epochs_to", "steps_to"])
def test_a_target_never_reached_takes_for_ever_and_makes_no_claim_hold(
    make: Make,
    left: list[int | None],
    right: list[int | None] | None,
    question: str,
    bounds: dict[str, float],
    outcome: str,
    metric: str,
) -> None:
    """It would have been reached at some time, which nobody knows; only that it took longer than the other side."""
    made = make()

    def cells(method: str, side: list[int | None]) -> list[str]:
        return [
            made.cell(method, seed=seed, rows=epochs([float(seconds or 1)], [0.9 if seconds else 0.1], steps=[7]))
            for seed, seconds in enumerate(side, 1)
        ]

    keys = cells("bnp", left), None if right is None else cells("bn", right)
    made.claim(metric, question, *keys, target=0.5, **bounds)
    verdict, (expected, _, never) = only(made), outcome.partition(": ")
    assert verdict.outcome == expected
    assert (f"infinite: the {never} side never reaches the target" in verdict.reason) == bool(never)
    assert render(made.read(), "markdown").count("infinite") >= bool(never)


def test_sides_of_one_method_are_told_apart_by_what_picks_them(make: Make) -> None:
    made = make()
    rates = {"muon": {"kind": "muon", "lr": 0.02}, "sgd": {"kind": "sgd", "lr": 0.1}}
    keys = {
        name: [
            made.cell("vanilla", 16, seed, epochs([1.0], [0.5]), settings={"optimizer": settings}) for seed in (1, 2)
        ]
        for name, settings in rates.items()
    }
    for right in ({"optimizer": "sgd"}, {"optimizer": {"kind": "sgd", "lr": 0.1}}, {"optimizer": {"lr": 0.1}}):
        made.claim("test_accuracy", "difference", keys["muon"], keys["sgd"], at_least=0.0)
        made.document["claims"][-1]["left"]["pattern"] = {"method": "vanilla", "optimizer": "muon"}
        made.document["claims"][-1]["right"]["pattern"] = {"method": "vanilla", **right}
    assert [verdict.question.partition(", ")[2] for verdict in verdicts(made.read())] == [
        "vanilla (optimizer = muon) − vanilla (optimizer = sgd)",
        "vanilla (optimizer = muon) − vanilla (optimizer = {kind = sgd, lr = 0.1})",
        "vanilla (optimizer = muon) − vanilla (optimizer.lr = 0.1)",
    ]


@pytest.mark.parametrize(
    ("status", "metric", "outcome"),
    [
        ("diverged", "reached", "holds"),
        ("not-applicable", "reached", "holds"),
        ("oom", "reached", "no data"),
        ("diverged", "test_accuracy", "no data"),
        ("diverged", "seconds_to", "no data"),
        ("not-applicable", "test_accuracy", "no data"),
        ("crashed", "train_seconds", "no data"),
        ("diverged", "flops_model", "no data"),
    ],
)
def test_what_did_not_train_counts_0_as_reached_and_is_no_data_elsewhere(
    make: Make, status: str, metric: str, outcome: str
) -> None:
    made = make()
    keys = [made.cell("bn", 1, seed, epochs([1.0], [0.9]), status=status, flops_model=1) for seed in (1, 2)]
    made.claim(metric, "value", keys, target=0.2 if metric in ("reached", "seconds_to") else None, at_most=0)
    verdict = only(made)
    assert verdict.outcome == outcome
    assert (verdict.estimate is None) == (outcome == "no data")
    if outcome == "no data":
        assert verdict.reason == f"2 {status}"


def test_null_is_missing_and_nan_is_not_a_number(make: Make) -> None:
    made = make()
    missing = made.cell("bn", rows=epochs([1], [None]))  # type: ignore[list-item]
    undefined = made.cell("bnp", rows=epochs([1], [math.nan]))
    for key in (missing, undefined):
        made.claim("test_accuracy", "value", [key], at_least=0)
    assert [v.reason for v in verdicts(made.read())] == ["no test_accuracy", "test_accuracy is not a number"]


@pytest.mark.regression
@pytest.mark.parametrize("question", ["difference", "ratio"])
def test_two_infinite_numbers_are_not_compared(make: Make, question: str) -> None:
    """It was said of any metric that neither side reaches a target."""
    made = make()
    keys = [[made.cell(method, rows=epochs([1], [0.5], test_loss=[math.inf]))] for method in ("bnp", "vanilla")]
    made.claim("test_loss", question, *keys, at_most=0)
    verdict = only(made)
    assert (verdict.outcome, verdict.reason) == ("no data", "test_loss is not finite")


def test_seeds_without_data_are_told_and_the_others_answer(make: Make) -> None:
    made = make()
    keys = [made.cell("bnp", seed=seed, rows=epochs([1], [0.5 + seed / 1000])) for seed in (1, 2)]
    keys += [made.cell("bnp", seed=3), made.cell("bnp", seed=4, status="oom")]
    made.cell("bn", seed=3, rows=epochs([1]))  # else nothing was asked of this seed
    made.claim("test_accuracy", "value", keys, at_least=0.4)
    verdict = only(made)
    assert (verdict.outcome, verdict.reason) == ("holds", "1 not measured, 1 oom")
    assert verdict.estimate is not None
    assert verdict.estimate.n == 2


def test_steps_are_taken_by_their_median_under_the_papers_preconditioner(make: Make) -> None:
    made = make()
    keys = []
    for seed in (1, 2, 3):  # whose medians are 199, 200 and 201
        steps = [
            {"epoch": 1, "step": step, "preconditioner": name, "kappa_d": kappa}
            for step, kappas in enumerate([(100.0, 5.0), (300.0, 6.0), (198.0 + seed, 7.0)])
            for name, kappa in zip(("batch", "running_damped"), kappas, strict=True)
        ]
        keys.append(made.cell("bnp", seed=seed, rows=epochs([1]), steps=steps))
    made.claim("kappa_d", "value", keys, at_least=1e2, at_most=1e5)
    verdict = only(made)
    assert (verdict.outcome, verdict.estimate and verdict.estimate.value) == ("holds", pytest.approx(200.0))


def test_each_combination_has_its_verdict(make: Make) -> None:
    made = make()
    for size, seconds in ((256, 1.0), (512, 2.0)):
        bn = made.cell("bn", size, rows=epochs([1.5] * len(NOISE)))
        bnp = made.cell("bnp", size, rows=epochs([seconds * e for e in NOISE]))
        made.claim("train_seconds", "ratio", [bnp], [bn], at_most=1, at="all", where={"batch_size": size})
    first, second = verdicts(made.read())
    assert (first.where, first.outcome) == ("batch_size = 256", "holds")
    assert (second.where, second.outcome) == ("batch_size = 512", "fails")


@pytest.mark.parametrize(
    ("accuracies", "exit_code"), [([0.5, 0.501], 0), ([0.1, 0.101], 1), ([0.2, 0.9], 0), ([0.1, 0.1], 0), ([], 4)]
)
def test_exit_codes(make: Make, accuracies: list[float], exit_code: int) -> None:
    made = make()
    keys = [made.cell("bnp", seed=seed, rows=epochs([1], [a])) for seed, a in enumerate(accuracies, 1)]
    made.claim("test_accuracy", "value", keys or [made.cell("bnp", status="error")], at_least=0.4)
    assert claims_exit_code(verdicts(made.read())) == exit_code


@pytest.mark.parametrize(
    "claim",
    [
        {"says": "odd"},
        {"says": "odd", "combinations": 3},
        {"combinations": [{}]},
        {
            "says": "odd",
            "metric": "x",
            "question": "value",
            "bounds": {"at_most": "1"},
            "combinations": [{"left": {"1": 2}}],
        },
    ],
)
def test_a_claim_in_another_form_is_no_data(make: Make, claim: dict[str, Any]) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1]))
    made.document["claims"].append(claim)
    assert only(made).outcome == "no data"


@pytest.mark.parametrize(("n", "distance"), [(2, 0.09), (3, 0.02), (5, 0.01)])
def test_seeds_needed_make_the_interval_narrow_enough(n: int, distance: float) -> None:
    deviation = 0.05

    def half(count: int) -> float:
        """Of count values with that standard deviation."""
        values = np.resize([-1.0, 1.0], count - count % 2)
        values = np.append(values, [0.0] * (count % 2))
        width = mean_interval((values * deviation / np.std(values, ddof=1)).tolist()).width
        assert width is not None
        return width

    needed = seeds_needed(n, half(n), distance, 1000)
    assert needed is not None
    assert needed > n
    assert half(needed) < distance <= half(needed - 1) or needed == n + 1
    assert seeds_needed(n, half(n), 1e-6, 1000) is None


@pytest.mark.parametrize(
    ("seconds", "measure", "expected"),
    [
        (
            [1.0, 1.1, 0.9, 1.04, 1.0, 1.2, 0.95, 1.1],
            {"interleave": ["method"]},
            "pairs would decide it; keep the warm-up",
        ),
        ([1.0], {"interleave": ["method"]}, "Undecided: ratio of train_seconds: n = 1; run more epochs or seeds."),
        ([1.0], {"interval": 0.02, "max_epochs": 2, "interleave": ["method"]}, "n = 1; raise max_epochs."),
        ([1.0], {"interval": 0.02, "interleave": ["method"]}, "n = 1; set max_epochs higher."),
        ([1.0] * 3, {"interleave": ["method"]}, "3 equal values; run more epochs or seeds."),
    ],
)
def test_an_undecided_claim_says_what_would_decide_it(
    make: Make, seconds: list[float], measure: dict[str, Any], expected: str
) -> None:
    made = make()
    made.document["measure"] = measure
    keys = [made.cell("bnp", rows=epochs(seconds))], [made.cell("bn", rows=epochs([1.0] * len(seconds)))]
    made.claim("train_seconds", "ratio", *keys, at="all", at_most=1.05)
    assert expected in render(made.read())


def test_shortened_runs_are_told_to_run_in_full(make: Make) -> None:
    made = make()
    made.document["shortened"] = {"epochs": 1}
    made.claim("train_seconds", "value", [made.cell("bnp", rows=epochs([1.0]))], at="all", at_most=2)
    text = render(made.read())
    assert "- shortened: 1 epoch instead of the suite's (--epochs)" in text
    assert "Undecided: value of train_seconds: n = 1; run without --epochs." in text


# A claim whose sides are asked for other epochs was answered from those that both happened to name.


def of_epochs(folder: Path, left: Any, right: Any, metric: str = "train_seconds") -> Verdict:
    """BNP's first eight epochs take ten times as long as all others; at most 1.05 times as long is claimed."""
    made = Made(folder)
    slow = [10.0] * 8 + [1.0] * 8
    bnp, bn = made.cell("bnp", rows=epochs(slow)), made.cell("bn", rows=epochs([1.0] * 16))
    made.claim(metric, "ratio", [bnp], [bn], left_at=left, right_at=right, at_most=1.05)
    (found,) = verdicts(made.read())
    return found


@pytest.mark.regression
def test_each_side_has_its_own_epochs(tmp_path: Path) -> None:
    found = of_epochs(tmp_path, {"epochs": [1, 14]}, {"epochs": [9, 16]})
    assert found.estimate is not None
    assert (found.outcome, found.estimate.value, found.unit) == ("undecided", pytest.approx(10.0), "epochs")
    assert "each side over epochs of its own" in found.reason


@pytest.mark.regression
def test_the_last_epoch_is_not_every_epoch(tmp_path: Path) -> None:
    found = of_epochs(tmp_path, "last", "all")
    assert (found.unit, found.outcome, found.reason.partition(";")[0]) == (
        "epochs",
        "undecided",
        "1 of 3 processes a side",
    )
    assert found.question == "ratio of train_seconds, bnp (the last epoch) / bn"


@pytest.mark.regression
@pytest.mark.parametrize("right", ["all", "area", {"epochs": [1, 16]}])
def test_the_same_epochs_are_paired_whatever_they_are_called(tmp_path: Path, right: Any) -> None:
    found = of_epochs(tmp_path, "all", right)
    assert found.estimate is not None
    assert (found.unit, found.estimate.n) == ("pairs", 16)
