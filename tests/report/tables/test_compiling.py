"""Seconds of compiling, and what was found compiled, from made-up results."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bnpbench.report import render
from bnpbench.report.tables import chapters
from tests.support.made_results import Made, epochs


def test_what_was_compiled_and_what_was_found_stand_in_one_place(make: Callable[..., Made]) -> None:
    """Of a method that refreshes the one graph may be found and the other not: it was compiled."""
    made = make()
    graphs = {
        "vanilla": [(3.14, 0, 1), (0.35, 1, 0), (0.45, 1, 0)],
        "bnp": [(0.25, 1, 0), (0.75, 1, 0), (0.5, 1, 0)],
        "foof": [(4.0, 1, 1), (12.5, 0, 2), (6.0, 0, 2)],
    }
    for method, cells in graphs.items():
        for seed, (seconds, hits, misses) in enumerate(cells, 1):
            columns = {"compile_seconds": seconds, "cache_hits": hits, "cache_misses": misses}
            made.cell(method, 16, seed, epochs([1.0]), engine="compiled", engine_active="compiled", **columns)
    text = render(made.read()).partition("## Compiling")[2].partition("## ")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    assert lines[1:] == [
        ["vanilla", "16", "3.1 s, then 0.40 s (2 from the cache)"],
        ["bnp", "16", "0.50 s (3 from the cache)"],
        ["foof", "16", "6.0 s"],
    ]
    csv = render(made.read(), "csv")
    assert "compiling,,vanilla,16,compile_seconds,3.14,3.14,3.14,1," in csv
    assert "compiling,,bnp,16,compile_seconds from the cache,0.5,0.25,0.75,3," in csv


@pytest.mark.regression
def test_a_form_that_is_compiled_in_an_eager_step_counts_by_its_seconds(make: Callable[..., Made]) -> None:
    """Its graphs are not counted, and the section did not show it."""
    made = make()
    for seed, seconds in enumerate((9.0, 4.0, 5.0), 1):
        counts = {"compile_seconds": seconds, "cache_hits": 0, "cache_misses": 0}
        made.cell("bnp", 16, seed, epochs([1.0]), engine_active="eager", bnp_form="fused", **counts)
        made.cell("vanilla", 16, seed, epochs([1.0]), engine_active="eager", **{**counts, "compile_seconds": 0.002})
    csv = render(made.read(), "csv")
    assert "compiling,,bnp,16,compile_seconds,5.0,4.0,9.0,3," in csv
    assert "compiling,,vanilla" not in csv


def test_where_nothing_was_compiled_there_is_no_such_section(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", 16, 1, epochs([1.0]), compile_seconds=0.0, cache_hits=0, cache_misses=0)
    sections = [section.title for chapter in chapters(made.read()) for section in chapter.sections]
    assert "Compiling" not in sections
