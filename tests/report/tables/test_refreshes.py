"""Steps with a refresh beside the others, from made-up results."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bnpbench.report import render
from bnpbench.report.tables import chapters
from tests.support.made_results import Made, epochs


@pytest.mark.parametrize(("kept", "shown"), [(None, "– (not recorded)"), (0, "0"), (4096, "4")])
def test_a_step_with_a_refresh_stands_beside_the_others(
    make: Callable[..., Made], kept: int | None, shown: str
) -> None:
    """In the second epoch there was none."""
    made = make()
    made.cell("vanilla", 16, 1, epochs([1.0]))
    optimizer = {} if kept is None else {"optimizer_state_bytes": kept}
    for seed, refresh in ((1, 0.04), (2, 0.06)):
        rows = epochs([1.0, 1.0], step_seconds_median=[0.01, 0.01], refresh_seconds_median=[refresh, None])
        made.cell("foof", 16, seed, rows, flops_refresh=12345, method_state_bytes=2048, **optimizer)
    text = render(made.read())
    assert "## Steps with a refresh" in text
    (line,) = [line for line in text.partition("## Steps with a refresh")[2].splitlines() if line.startswith("| foof")]
    assert [cell.strip() for cell in line.split("|")[2:-1]] == [
        "16", "10.00 (10.00–10.00)", "50.00 (40.00–60.00)", "5.000 (4.000–6.000)", "12,345", "2", shown,
    ]  # fmt: skip
    assert "refreshes,,foof,16,refresh_milliseconds,50.0,40.0,60.0,2," in render(made.read(), "csv")


def test_where_all_steps_are_alike_there_is_no_such_section(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", 16, 1, epochs([1.0], step_seconds_median=[0.01]), method_state_bytes=2048)
    sections = [section.title for chapter in chapters(made.read()) for section in chapter.sections]
    assert "Steps with a refresh" not in sections
