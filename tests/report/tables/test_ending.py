"""The last screen of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bnpbench.report.render import render_ending
from bnpbench.results import read_results
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]
MEASURED = Path(__file__).parents[2] / "unchanged" / "measured"


def test_the_quick_suite_fits_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(MEASURED)
    text = render_ending(read_results(Path("quick")), Path("quick"), terminal=(80, False))
    lines = text.splitlines()
    assert len(lines) <= 23  # and the prompt
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("Claims: 4 of 4 hold") for line in lines)
    assert sum(line.startswith(("60 ", "6 ", "1 ")) for line in lines) == 9


def test_what_failed_is_told_with_its_reason_and_its_log(make: Make) -> None:
    made = make()
    made.cell("vanilla", rows=epochs([1.0, 1.1], [0.5, 0.6]))
    made.cell("bnp", status="error", message="it broke", log="logs/1234.log")
    made.cell("bn", status="not-applicable", message="a single row")
    text = render_ending(made.read(), made.out, terminal=(500, False))
    log = made.store.folder / "logs" / "1234.log"
    assert f"Failed: bnp at N = 16: error: it broke (log: {log})." in text
    assert "bn at N = 16: not-applicable: a single row." in text
    assert "Failed: bn " not in text
    assert f"Everything: bnpbench report {made.out} --all" in text


def test_a_claim_that_fails_is_named(make: Make) -> None:
    made = make()
    keys = [made.cell("bnp", seed=seed, rows=epochs([1.0], [0.5 + seed / 100])) for seed in (1, 2, 3)]
    made.claim("test_accuracy", "value", keys, at_least=0.9, says="it learns")
    text = render_ending(made.read(), made.out, terminal=(500, False))
    assert "Claims: 0 of 1 hold, 1 fails." in text
    assert "Fails: it learns." in text


def test_more_rows_than_a_screen_has_are_counted(make: Make) -> None:
    made = make()
    for size in range(1, 21):
        for method in ("vanilla", "bnp"):
            made.cell(method, size, rows=epochs([1.0, 1.1], [0.5, 0.6]))
    text = render_ending(made.read(), made.out)
    assert "8 more rows: see the report." in text
