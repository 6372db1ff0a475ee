"""Titles: the paper's figure where a suite repeats one, and the settings that tell groups apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bnpbench.report.data import views
from bnpbench.report.figures import figures
from tests.support.made_results import Made, epochs

PAPER = "Lange, Helfrich and Ye 2022"
SOURCES = {
    f"{PAPER}, Table 1 and Figure 9": {"step-time": "Figure 9"},
    f"{PAPER}, Figure 3 (right); learning rates of Table 2": {"training": "Figure 3 (right)"},
    f"{PAPER}, Figures 4 (right) and 5, section 5": {"training": "Figures 4 (right) and 5"},
    f"{PAPER}, section 5.1 and Figure 8": {"conditioning": "Figure 8"},
    f"{PAPER}, Table 2": {},
    f"After Figures 3 and 4 of {PAPER}, on a smaller data set": {},
    "Another paper, Figure 9": {},
    "": {},
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_papers_figure_stands_in_the_title(make: Callable[..., Made], source: str) -> None:
    made = make()
    made.document["source"] = source
    steps = [
        {"epoch": 1, "step": 1, "layer": "out", "neuron": 0, "preconditioner": "batch", "kappa_hessian": kappa}
        for kappa in (10.0, 20.0)
    ]
    for size in (16, 64):
        rows = epochs([1.0] * 3, [0.5] * 3, train_loss=[3.0, 2.0, 1.0], steps=[10] * 3)
        made.cell("bnp", size, 1, rows, steps=steps)
    titles = {figure.kind: figure.title for figure in figures(views(made.read()))}
    assert {"training", "step-time", "conditioning", "cumulative-time"} <= set(titles)
    for kind, title in titles.items():
        cited = SOURCES[source].get(kind)
        assert title.endswith(f", {cited} of the paper") if cited else "of the paper" not in title, kind


def test_groups_are_named_by_data_set_and_network(make: Callable[..., Made]) -> None:
    """Not by the first option that only one of the data sets has."""
    made = make()
    synthetic = {"kind": "synthetic", "shape": [8], "train": 20, "test": 5, "seed": 1}
    for dataset in ({"kind": "digits"}, synthetic):
        for network in ({"kind": "fc", "hidden": [9]}, {"kind": "resnet", "blocks": 1}):
            settings = {"dataset": dataset, "network": network}
            made.cell("bnp", 16, 1, epochs([1.0] * 3, [0.5] * 3), settings=settings, alone=True)
    titles = [figure.title for figure in figures(views(made.read())) if figure.kind == "cumulative-time"]
    assert [title.partition(": ")[2] for title in titles] == [
        f"{dataset}, {network}" for dataset in ("digits", "synthetic") for network in ("fc", "resnet")
    ]
