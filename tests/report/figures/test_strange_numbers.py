"""Figures and page of results from strangers: absurd numbers are drawn or left out, never raised."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bnpbench.report.data import views
from bnpbench.report.figures import figures
from bnpbench.report.render.drawing import write_figures
from bnpbench.report.render.page import render_page
from bnpbench.results import Results
from tests.support.made_results import Made, epochs

NUMBERS = st.lists(st.none() | st.floats() | st.integers(-1, 1).map(float), min_size=2, max_size=8)
COUNTS = st.none() | st.integers(-1, 2**63 - 1)
SETTINGS = st.none() | st.booleans() | st.integers(-2, 10**20) | st.floats() | st.just("x") | st.just([1])


def strange(
    out: Path, numbers: list[float], others: list[float], count: int | None, batch_size: Any, text: str
) -> Results:
    made = Made(out)
    keys: dict[str, list[str]] = {}
    for method in ("vanilla", "bn", "bnp"):
        for seed, values in ((1, numbers), (2, others)):
            steps = [
                {
                    "epoch": 1,
                    "step": place if count is None else count,
                    "layer": text,
                    "neuron": count,
                    "preconditioner": text,
                    "kappa_hessian": value,
                    "kappa_preconditioned": value,
                    "kappa_d": value,
                }
                for place, value in enumerate(values)
            ]
            for size in (16, 64):
                key = made.cell(
                    method,
                    size,
                    seed,
                    epochs(values, others, train_loss=numbers, steps=[count] * len(values)),
                    steps=steps if size == 16 else (),
                    flops_method_predicted=count,
                    flops_method_counted=count,
                    alone=True,
                    label=f"{method} {text}",
                )
                keys.setdefault(method, []).append(key)
    for metric, question in (("train_seconds", "ratio"), ("test_accuracy", "difference"), ("train_loss", "value")):
        sides = (keys["bn"],) if question == "value" else (keys["bn"], keys["bnp"])
        made.claim(metric, question, *sides, at_least=0.0, at_most=1e300, says=text)
    for cell in made.document["cells"][:4]:
        cell["settings"] = {**cell["settings"], "batch_size": batch_size}
    return made.read()


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    numbers=NUMBERS,
    others=NUMBERS,
    count=COUNTS,
    batch_size=SETTINGS,
    text=st.text(max_size=8, alphabet="ab$<\n{%\0é批"),
)
def test_no_number_stops_the_page(
    tmp_path_factory: pytest.TempPathFactory,
    numbers: list[float],
    others: list[float],
    count: int | None,
    batch_size: Any,
    text: str,
) -> None:
    results = strange(tmp_path_factory.mktemp("strange"), numbers, others, count, batch_size, text)
    for figure in figures(views(results)):
        assert figure.panels
    render_page(results)


EXTREMES = {
    "huge": ([1e308, 1e308], [-1e308, 1e308]),
    "tiny": ([5e-324, 1e-300], [1e-310, 2e-310]),
    "both": ([5e-324, 1e308], [1e-300, 1e300]),
    "zero": ([0.0, 0.0], [0.0, 0.0]),
    "negative": ([-1.0, -2.0], [-3.0, -1.0]),
    "infinite": ([math.inf, 1.0, 2.0], [-math.inf, 1.0, math.nan]),
    "equal": ([1.0, 1.0], [1.0, 1.0]),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_no_number_stops_the_drawing(make: Callable[..., Made], tmp_path: Path, name: str) -> None:
    numbers, others = EXTREMES[name]
    count, size = {"huge": (2**62, 10**20), "zero": (0, 0), "negative": (-1, -2)}.get(name, (7, 1))
    results = strange(tmp_path / "results", numbers, others, count, size, f"{name} $\\frac")
    write_figures(results, tmp_path / "figures")
    render_page(results)
