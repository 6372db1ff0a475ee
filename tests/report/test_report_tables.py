"""The report of made-up results, number for number."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from bnpbench.errors import BnpbenchError
from bnpbench.report import render
from bnpbench.report.document import Chapter, Record, Section, Table, to_csv, to_json, to_markdown
from bnpbench.results import read_results, told
from bnpbench.text import csv_cell, markdown, plain, significant, span
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
                if (method, size, seed) == ("bnp", 16, 2):
                    seconds[3] *= 2  # an outlier
                rows = epochs(
                    seconds,
                    [accuracy + 0.01 * seed + 0.02 * min(e, 4) for e in range(6)],
                    train_loss=[2.0 - accuracy - 0.01 * seed - 0.1 * e for e in range(6)],
                )
                counts = {"flops_model": 1000 * size, "operators_per_step": 10 + number}
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

    assert number("seconds per epoch", "bnp", 256, "train_seconds") == (1.5, 1.5, 1.5, 18)
    assert number("ratio to vanilla", "bnp", 256, "train_seconds ratio") == (1.5, 1.5, 1.5, 18)
    assert number("ratio to bn", "bnp", 256, "train_seconds ratio") == (1.2, 1.2, 1.2, 18)
    assert number("test accuracy", "bnp", 16, "test_accuracy epoch 1") == pytest.approx((0.52, 0.51, 0.53, 3))
    assert number("test accuracy", "bnp", 16, "test_accuracy last") == pytest.approx((0.60, 0.59, 0.61, 3))
    assert number("test accuracy", "bnp", 16, "train_loss last") == pytest.approx((0.98, 0.97, 0.99, 3))
    assert number("time to accuracy", "bn", 256, "seconds_to 0.45") == (3.75, 2.5, 3.75, 3)
    assert number("time to accuracy", "bn", 256, "epochs_to 0.45") == (3, 2, 3, 3)
    assert number("FLOPs per step", "bnp", 16, "flops_method_predicted") == (2_145_204, 2_145_204, 2_145_204, 3)


def test_cells_without_a_number_show_the_reason(make: Make) -> None:
    text = render(full(make()).read())
    assert "– (not-applicable)" in text
    assert "– (crashed)" in text
    assert "| bnp      | 1   | 2       | diverged" in text
    assert "killed by SIGSEGV" in text
    assert "logs/b.log" in text


def test_environments_never_share_a_table(make: Make) -> None:
    for torch, seconds in (("2.14.1", 1.0), ("2.15.0", 3.0)):
        made = make(software={"torch": torch})
        made.cell("vanilla", rows=epochs([seconds] * 6))
        results = made.read()
    text = render(results)
    assert text.count("# made on Made-up CPU") == 2
    assert "2.000" not in text  # the median of both


def test_groups_are_told_apart_by_what_does_not_follow_from_the_method(make: Make) -> None:
    made = make()
    for hidden in (10, 20):
        for method, lr in (("vanilla", 0.1), ("bn", 0.5)):
            settings = {"network": {"kind": "fc", "hidden": [hidden]}, "optimizer": {"kind": "sgd", "lr": lr}}
            made.cell(method, rows=epochs([1.0] * 6), settings=settings)
    text = render(made.read())
    assert "### Seconds per epoch: network.hidden = [10]\n" in text
    assert "- optimizer.lr = 0.1 (vanilla); 0.5 (bn)" in text


def test_methods_that_took_no_turns_have_no_ratio_and_the_report_says_why(make: Make) -> None:
    made = make()
    made.document["measure"] = {}
    for method in ("vanilla", "bnp"):
        made.cell(method, rows=epochs([1.0] * 6), alone=True)
    text = render(made.read())
    assert "No ratios: the methods were not measured in turn" in text
    assert "Ratio to" not in text


def test_cells_of_a_block_that_ran_again_one_by_one_took_no_turns(make: Make) -> None:
    made = make()
    for method in ("vanilla", "bnp"):
        made.cell(method, rows=epochs([1.0] * 6, turn=[None] * 6))
    text = render(made.read())
    assert "No ratios: the methods were not measured in turn" in text
    assert "pairs of epochs" not in text


def test_a_noisy_ratio_carries_a_warning_that_knows_what_is_on(make: Make) -> None:
    made = make()
    made.cell("vanilla", rows=epochs([1.0] * 6))
    made.cell("bnp", rows=epochs([0.8, 1.5, 1.0, 1.3, 0.7, 1.1]))
    text = render(made.read())
    assert "Noisy: 1 of 1 intervals are wider than ±5%" in text
    assert "(turns are taken and warm-up is apart already)" in text
    made.document["measure"] = {"interleave": ["method"]}
    assert "keep the warm-up apart (warmup_epochs = 1)" in render(made.read())


@pytest.mark.parametrize(
    ("seconds", "measure", "expected"),
    [
        (
            [1.0, 1.1, 0.9, 1.04, 1.0, 1.2, 0.95, 1.1],
            {"interleave": ["method"]},
            "pairs would decide it; keep the warm-up",
        ),
        ([1.0, 1.1], {"interleave": ["method"]}, "6 pairs are needed, 2 measured; run more epochs or seeds"),
        ([1.0, 1.1], {"interval": 0.02, "max_epochs": 2, "interleave": ["method"]}, "2 measured; raise max_epochs"),
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
    assert "- shortened: 1 epochs instead of the suite's (--epochs)" in text
    assert "1 measured; run without --epochs" in text


@pytest.mark.parametrize("format", FORMATS)
def test_names_break_no_format(make: Make, format: str) -> None:  # noqa: A002
    evil = "a|b\n# c \"d\" 'e' <script>\x1b[31m\u202e[x](javascript:1) `f`"
    made = make(name=evil)
    made.document["description"] = evil
    made.cell("bnp", rows=epochs([1.0]), label=evil)
    made.cell("bn", label="=cmd()", status="error", message=evil, log=evil)
    text = render(made.read(), format)
    assert "\x1b" not in text
    assert "\u202e" not in text
    if format == "json":
        assert json.loads(text)[0]["suite"].startswith("a|b # c \"d\" 'e' <script>")
    elif format == "csv":
        rows = list(csv.DictReader(io.StringIO(text)))
        assert {r["method"] for r in rows} == {plain(evil), "'=cmd()"}
        assert all(None not in r and None not in r.values() for r in rows)
    else:
        assert "<script>" not in text.replace("\\<", "")
        assert "](" not in text.replace("]\\(", "")
        tables = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
        assert all(line.endswith("|") for line in tables)
        assert [line for line in text.splitlines() if line.startswith("# ")] == [text.splitlines()[0]]


@pytest.mark.parametrize("name", ["1e5", "007", "123456789012", "0x10", "inf"])
def test_names_that_look_like_numbers_stay_names(make: Make, name: str) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0] * 6), label=name)
    text = render(made.read())
    assert f"| {name} " in text


@pytest.mark.parametrize("start", ["=", "+", "@"])
def test_no_spreadsheet_takes_text_for_a_formula(start: str) -> None:
    assert csv_cell(f"{start}1+1") == f"'{start}1+1"


def test_json_holds_no_nan_and_no_infinity() -> None:
    records = tuple(Record("t", value=value) for value in (math.inf, -math.inf, math.nan, 1.0, None))
    chapter = Chapter("s", "e", (Section("x", tables=(Table("", ("a",), (("b",),), (), records),)),))
    values = [r["value"] for r in json.loads(to_json([chapter]))[0]["sections"][0]["tables"][0]["records"]]
    assert values == ["inf", "-inf", "nan", 1.0, None]
    assert [row["value"] for row in csv.DictReader(io.StringIO(to_csv([chapter])))] == ["inf", "-inf", "nan", "1.0", ""]
    assert to_markdown([chapter]) == "## x\n\n| a   |\n|:----|\n| b   |\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (16.08, "16.08"),
        (1234.5, "1,234"),
        (0.00123456, "0.001235"),
        (-2.0, "-2.000"),
        (math.inf, "∞"),
        (math.nan, "nan"),
        (1e-9, "1.000e-09"),
    ],
)
def test_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_small_words() -> None:
    assert span([3, 1, 2, 5]) == "1–3, 5"
    assert told({"kind": "sgd", "lr": 0.1, "warmup": None}) == "{kind = sgd, lr = 0.1}"
    assert told({"kind": "glorot"}) == "glorot"
    assert told([True, None]) == "[true, none]"
    assert told([[32] * 8, [32] * 4, [1, 2, 3, 4, 5]]) == "[[32] * 8, [32, 32, 32, 32], [1, 2, 3, 4, 5]]"
    assert markdown("a\\|b") == "a\\\\\\|b"


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


def test_what_was_not_measured_for_one_reason_is_one_row(make: Make) -> None:
    made = make()
    made.cell("vanilla", 16, rows=epochs([1.0] * 6, [0.5] * 6))
    for method in ("bn", "bnp"):
        for size in (256, 512):
            for seed in (1, 2):
                made.cell(method, size, seed)
    made.cell("ln", 512, status="crashed", message="killed by SIGSEGV")
    text = render(made.read())
    assert "| bn, bnp  | 256, 512 | 1–2     | not measured |" in text
    assert "| ln       | 512      | 1       | crashed      | killed by SIGSEGV |" in text
    assert render(made.read(), format="csv").count("not finished") == 9  # one record a cell, as before


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


@pytest.mark.parametrize(("scores", "end"), [([0.9, 0.8, 0.7], 0.01), ([0.7, 0.8, 0.9], 1.0), ([0.7, 0.9, 0.8], None)])
def test_a_best_value_at_the_end_of_what_was_tried_is_told(make: Make, scores: list[float], end: float | None) -> None:
    made = make()
    made.document["select"] = {"over": "optimizer.lr", "by": "validation_accuracy", "seeds": 1}
    for lr, score in zip((0.01, 0.1, 1.0), scores, strict=True):
        settings = {"optimizer": {"kind": "sgd", "lr": lr}}
        made.cell("bnp", rows=epochs([1.0], validation_accuracy=[score]), role="trial", settings=settings)
    told = f"warning: bnp at N = 16: the best, {end}, is at the end of what was tried"
    text = render(made.read())
    assert ("at the end of what was tried" in text) == (end is not None)
    assert end is None or told in text


def test_an_interval_that_nothing_bounds_says_when_it_gave_up(make: Make) -> None:
    made = make()
    made.document["measure"] = {"interleave": ["method"], "interval": 0.02, "max_epochs": None, "max_seconds": None}
    made.cell("bnp", rows=epochs([1.0] * 7), stopped_by="max_epochs")
    assert "stopped by max_epochs (none was given: after 7 epochs) before the interval was reached" in render(
        made.read()
    )


def test_what_moves_numbers_is_told(make: Make) -> None:
    made = make()
    made.cell(
        "bnp", rows=epochs([1.0] * 6), settings={"train_limit": 500}, dirty=True, throttled=True,
        engine_active="compiled", stopped_by="max_seconds", finished=datetime(2026, 2, 1, tzinfo=UTC),
    )  # fmt: skip
    text = render(made.read())
    for line in (
        "- limited: trained on the first 500 examples (train_limit)",
        "- measured from a work tree with uncommitted changes: 1 of 1 cells",
        "- measured while the clock was throttled: 1 of 1 cells",
        "- another engine than asked for ran: 1 of 1 cells (bnp)",
        "- stopped by max_seconds before the interval was reached: 1 of 1 cells",
        "- days: 2026-02-01",
    ):
        assert line in text


def test_damaged_parts_are_named_without_the_users_folders(make: Make) -> None:
    made = make()
    key = made.cell("bnp", rows=epochs([1.0]))
    made.read()
    part = made.store.folder / "cells" / f"{key}.parquet"
    part.write_bytes(b"nonsense" * 10)
    text = render(read_results(made.out))
    assert f"| made/{made.store.folder.name}/cells/{key}.parquet |" in text
    assert str(made.out) not in text


def test_an_unknown_format_is_a_usage_error(make: Make) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0]))
    with pytest.raises(BnpbenchError, match="markdown, csv, json"):
        render(made.read(), "html5")


def test_a_report_needs_no_torch(make: Make) -> None:
    made = make()
    made.cell("bnp", rows=epochs([1.0] * 6))
    made.read()
    program = (
        "import sys; from bnpbench.results import read_results; from bnpbench.report import render, compare\n"
        f"r = read_results({str(made.out)!r}); render(r); compare(r, r).render()\n"
        "sys.exit('torch' in sys.modules or 'scipy.stats' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
