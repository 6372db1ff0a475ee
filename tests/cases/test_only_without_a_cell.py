"""``--only batch_size=10,11`` ran the cells of 10 and said nothing of 11."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.errors import BnpbenchError, SuiteError
from bnpbench.profiling import inspection
from bnpbench.records.documents import Environment
from tests.command import SUITE, suite

TUNED = SUITE.replace("threads = 1", "threads = 1\nvalidation = 0.1") + (
    'optimizer.lr = [0.1, 0.2]\n[select]\nover = "optimizer.lr"\n'
)


@pytest.mark.parametrize(
    ("only", "told"),
    [
        ("batch_size=10,11", "--only batch_size=10,11: 11: no cell has this batch_size; there are: 10"),
        ("method=bnp,batch_size=10", "a comma parts values of one setting: write --only batch_size=10 by itself"),
        ("method=bnp,vanila", "no cell has this method; there are: vanilla, bnp (did you mean 'vanilla'?)"),
        ("network.hidden=[9,8],[9]", "a list: no cell has this network"),
    ],
)
def test_each_alternative_is_some_cell_s(only: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=re.escape(told)):
        load_suite(suite(tmp_path)).cells(device="cpu", threads=1, only=[only])


def test_cells_that_are_left_out_or_come_later_count(tmp_path: Path) -> None:
    assert len(load_suite(suite(tmp_path)).cells(device="cpu", threads=1, only=["seed=1,2"], seeds=1)) == 2
    tuned = load_suite(suite(tmp_path, TUNED))
    only = ["seed=1,2", "optimizer.lr=0.1,0.2"]
    trials = tuned.cells(device="cpu", threads=1, only=only)
    assert len(trials) == 4
    scores = {cell.key: cell.settings.optimizer.lr for cell in trials}
    assert len(tuned.finals(scores, device="cpu", threads=1, only=only)) == 4


def test_profile_says_how_to_choose_one_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "start_forkserver", lambda: None)
    monkeypatch.setattr(inspection, "ask", lambda request: Environment(id="x"))
    with pytest.raises(BnpbenchError, match=r"2 match: .* --only method=bnp --only batch_size=16$"):
        inspection.choose(load_suite(suite(tmp_path)), [], [], "cpu")


def test_the_readme_parts_settings_by_no_comma() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert not re.findall(r"--only \w+=[^ `,]+,\w+=", readme)
