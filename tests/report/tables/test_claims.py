"""Published figures beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bnpbench.report import render
from tests.support.made_results import Made, epochs

# A published figure of one epoch stood beside ours of another, and one of times beside the last epoch alone.
SECONDS = [1.0] * 7 + [100.0]


def made(folder: Path, metric: str, at: Any) -> Made:
    results = Made(folder)
    rows = epochs(SECONDS, [0.1 * epoch for epoch in range(1, 9)], evaluation_seconds=SECONDS, test_loss=SECONDS)
    keys = [results.cell("bnp", seed=seed, rows=rows) for seed in (1, 2)]
    reference = {"cell": {}, "cells": keys, "metric": metric, "at": at, "value": 0.25, "source": "Table 7"}
    results.document["references"] = [reference]
    return results


@pytest.mark.regression
@pytest.mark.parametrize(
    ("metric", "at", "shown"),
    [
        ("test_accuracy", {"epoch": 1}, "0.25 (epoch 1; Table 7)"),
        ("test_accuracy", "best", "0.25 (the best epoch; Table 7)"),
        ("test_accuracy", "last", "0.25 (Table 7)"),
        ("test_accuracy", None, "0.25 (Table 7)"),
        ("train_seconds", None, "0.25 (Table 7)"),
        ("train_seconds", "last", "0.25 (the last epoch; Table 7)"),
    ],
)
def test_its_epoch_stands_beside_it(tmp_path: Path, metric: str, at: Any, shown: str) -> None:
    assert shown in render(made(tmp_path, metric, at).read())


@pytest.mark.regression
@pytest.mark.parametrize(
    ("metric", "at", "what", "ours", "n"),
    [
        ("evaluation_seconds", None, "evaluation_seconds all epochs", "1.000 [1.000, 1.000]", 16),
        ("evaluation_seconds", "last", "evaluation_seconds the last epoch", "100.0 [100.0, 100.0]", 2),
        ("evaluation_seconds", {"epochs": [1, 3]}, "evaluation_seconds epochs 1 to 3", "1.000 [1.000, 1.000]", 6),
        ("test_loss", None, "test_loss", "100.0 (100.0–100.0)", 2),
        ("test_loss", {"epoch": 1}, "test_loss epoch 1", "1.000 (1.000–1.000)", 2),
    ],
)
def test_times_are_taken_as_by_a_claim(tmp_path: Path, metric: str, at: Any, what: str, ours: str, n: int) -> None:
    (chapter,) = json.loads(render(made(tmp_path, metric, at).read(), "json"))
    (section,) = [section for section in chapter["sections"] if section["title"] == "Published figures"]
    assert section["tables"][0]["rows"] == [["bnp", "16", what, ours, "0.25", "Table 7"]]
    (record,) = section["tables"][0]["records"]
    assert (record["n"], record["text"]) == (n, "published 0.25, Table 7")
