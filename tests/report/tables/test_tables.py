"""The report of made-up results, number for number."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable

import pytest

from bnpbench.report import render
from bnpbench.results import read_results
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]
FORMATS = {"markdown": "md", "csv": "csv", "json": "json"}


def full(made: Made) -> Made:
    """Three seeds of four methods at three batch sizes, with one of everything that can go wrong."""
    accuracies = {"vanilla": 0.30, "bn": 0.40, "bnp": 0.50}
    for size, base in ((16, 2.0), (256, 1.0)):
        for seed in (1, 2, 3):
            for number, (method, accuracy) in enumerate(accuracies.items()):
                seconds = [base * (1 + number / 4)] * 6
                if (method, size) == ("bn", 16):
                    seconds = [
                        s * noise for s, noise in zip(seconds, [1.00, 1.03, 0.98, 1.01, 0.97, 1.02], strict=True)
                    ]
                if method == "bnp":
                    seconds = [s * 1.01 ** (seed - 2) for s in seconds]  # a process is what repeats
                if (method, size, seed) == ("bnp", 16, 2):
                    seconds[3] *= 2  # an outlier
                rows = epochs(
                    seconds,
                    [accuracy + 0.01 * seed + 0.02 * min(e, 4) for e in range(6)],
                    train_loss=[2.0 - accuracy - 0.01 * seed - 0.1 * e for e in range(6)],
                    steps=[20] * 6,
                )
                counts = {"flops_model": 1000 * size, "operators_per_step": 10 + number}
                if size == 16:
                    counts["test_examples"] = 1000  # the others' rounding is not known
                if method != "vanilla":
                    counts |= {"flops_method_counted": 2_145_204, "flops_method_executed": 2_000_000}
                if method == "bnp":
                    counts |= {"flops_method_predicted": 2_145_204, "bnp_form": "plain"}
                made.cell(
                    method, size, seed, rows, settings={"optimizer": {"kind": "sgd", "lr": 0.1 + number}}, **counts
                )
    for seed in (1, 2, 3):
        text = "batch normalization over a single row"
        made.cell("bn", 1, seed, status="not-applicable", message=text)
    made.cell("bnp", 1, 1, epochs([3.0, 3.3], [0.2, 0.4], train_loss=[2.1, 1.9]))
    made.cell("bnp", 1, 2, epochs([3.1], [0.1]), status="diverged", message="loss is inf in epoch 2", log="logs/a.log")
    made.cell("bnp", 1, 3)
    made.cell("ln", 16, 1, status="crashed", message="killed by SIGSEGV", log="logs/b.log")
    made.cell("ln", 16, 7, epochs([1.0]), in_suite=False)
    keys = {cell["key"]: cell for cell in made.document["cells"]}

    def seeds(method: str, size: int) -> list[str]:
        return [k for k, c in keys.items() if (c["label"], c["settings"]["batch_size"]) == (method, size)]

    for size in (16, 256):
        made.claim(
            "train_seconds", "ratio", seeds("bnp", size), seeds("bn", size), at="all", at_most=1.25,
            says="BNP costs at most a quarter more than BN", where={"batch_size": size},
        )  # fmt: skip
    made.claim("test_accuracy", "difference", seeds("bnp", 16), seeds("bn", 16), at_most=0.05, says="no gain")
    made.claim("test_accuracy", "value", seeds("bnp", 1), at_least=0.3, says="BNP trains at batch size 1")
    made.claim("reached", "value", seeds("bn", 1), target=0.2, at_most=0, says="BN does not train at batch size 1")
    made.claim("test_accuracy", "value", seeds("ln", 16), at_least=0.3, says="LN trains")
    made.document["targets"] = [0.45, 0.9]
    made.document["shortened"] = {"epochs": 6}
    made.document["references"] = [
        {"cell": {}, "cells": seeds("bn", 16), "metric": "train_seconds", "value": 16.08, "source": "Table 1, V100"},
        {"cell": {}, "cells": seeds("bnp", 16), "metric": "test_accuracy", "value": 0.52, "source": "Figure 3"},
        {"cell": {}, "cells": seeds("bnp", 16), "metric": "test_loss", "value": 1.2, "source": "Figure 3"},
        {
            "cell": {},
            "cells": seeds("bn", 256),
            "metric": "epochs_to",
            "target": 0.45,
            "value": 4,
            "source": "Figure 3",
        },
    ]
    return made


@pytest.mark.parametrize("format", FORMATS)
def test_every_number_of_every_table(make: Make, snapshot: Callable[[str, str], None], format: str) -> None:  # noqa: A002
    results = full(make()).read()
    (results.damaged).clear()
    snapshot(f"full.{FORMATS[format]}", render(results, format))


def test_the_numbers_are_those_that_were_made_up(make: Make) -> None:
    """The snapshot's main numbers again, by arithmetic."""
    rows = list(csv.DictReader(io.StringIO(render(full(make()).read(), "csv"))))

    def number(table: str, method: str, size: int, quantity: str) -> tuple[float, float, float, int]:
        (row,) = [
            r
            for r in rows
            if (r["table"], r["method"], r["batch_size"], r["quantity"]) == (table, method, str(size), quantity)
        ]
        return float(row["value"]), float(row["low"]), float(row["high"]), int(row["n"])

    spread = 1.01 ** (4.30265 / math.sqrt(3))  # Student's t of the logarithms of 1 / 1.01, 1 and 1.01
    for table, quantity, middle in (
        ("seconds per epoch", "train_seconds", 1.5),
        ("ratio to vanilla", "train_seconds ratio", 1.5),
        ("ratio to bn", "train_seconds ratio", 1.2),
    ):
        assert number(table, "bnp", 256, quantity) == pytest.approx((middle, middle / spread, middle * spread, 18))
    assert number("cost and gain", "bnp", 256, "time a step over the baseline's") == pytest.approx(
        (1.5, 1.5 / spread, 1.5 * spread, 18)
    )
    assert number("test accuracy", "bnp", 16, "test_accuracy epoch 1") == pytest.approx((0.52, 0.51, 0.53, 3))
    assert number("test accuracy", "bnp", 16, "test_accuracy last") == pytest.approx((0.60, 0.59, 0.61, 3))
    assert number("test accuracy", "bnp", 16, "train_loss last") == pytest.approx((0.98, 0.97, 0.99, 3))
    assert number("time to accuracy", "bn", 256, "seconds_to 0.45") == (3.75, 2.5, 3.75, 3)
    assert number("time to accuracy", "bn", 256, "epochs_to 0.45") == (3, 2, 3, 3)
    assert number("time to accuracy", "bn", 256, "steps_to 0.45") == (60, 40, 60, 3)
    assert number("FLOPs per step", "bnp", 16, "flops_method_predicted") == (2_145_204, 2_145_204, 2_145_204, 3)


def test_cells_without_a_number_show_the_reason(make: Make) -> None:
    text = render(full(make()).read())
    assert "– (not-applicable)" in text
    assert "– (crashed)" in text
    assert "| bnp      | 1   | 2       | diverged" in text
    assert "killed by SIGSEGV" in text
    assert "logs/b.log" in text


def test_nothing_measured_yet(make: Make) -> None:
    made = make()
    made.cell("bnp")
    assert "nothing of this suite has been measured" in render(made.read())


def test_without_a_suite_document_every_cell_is_shown(make: Make) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0] * 6, [0.5] * 6))
    made.read()
    (made.store.suite_folder / "suite.json").unlink()
    text = render(read_results(made.out))
    assert "no suite.json is here" in text
    assert "0.5000 (n = 1)" in text


def test_trials_stand_in_no_table(make: Make) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0] * 6), role="trial")
    made.cell("bn", rows=epochs([2.0] * 6))
    text = render(made.read())
    assert "trials, which only choose a setting: 1: 1 ok" in text
    assert "| bnp" not in text


def test_what_was_not_run_at_all_stands_in_one_table_only(make: Make) -> None:
    made = make()
    made.cell("vanilla", 16, rows=epochs([1.0] * 6, [0.5] * 6))
    made.cell("bn", 16)
    made.cell("vanilla", 256)
    made.cell("vanilla", 16, settings={"network": {"kind": "fc", "hidden": [7]}})
    text = render(made.read())
    assert "N = 256" not in text
    assert text.count("| vanilla  | 256 |") == 1
    assert "| network.hidden = [100] | vanilla  | 256 | 1       | not measured |" in text
    assert "Seconds per epoch: network.hidden = [7]" not in text
    assert "| bn       | – (not measured)" in text


def test_the_answer_stands_first_and_settings_last(make: Make) -> None:
    """Reasons stand above tables: before the table's first line."""
    text = render(full(make()).read())
    titles = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert titles[:3] == ["Cost and gain", "Claims: 3 of 6 hold, 1 fails, 1 undecided, 1 without data", "Deviations"]
    assert titles[-2:] == ["What ran", "Settings"]
    answer = text[text.index("## Cost and gain") : text.index("## Claims")]
    assert (
        answer.index("3 equal values show no spread to judge a time by")
        < answer.index("(bn at N = 16")
        < answer.index("\n| N ")
    )
    assert answer.index("Level: as vanilla") > answer.index("\n| N ")
