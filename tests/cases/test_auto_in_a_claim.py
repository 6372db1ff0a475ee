"""A claim about ``engine = "auto"`` was never answered, and one about what that stands for was refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnpbench import load_suite
from bnpbench.errors import SuiteError
from tests.command import SUITE, suite

ENGINES = SUITE.replace("seed = [1, 2]", 'seed = [1]\nengine = ["auto", "compiled"]')
CLAIM = """
[[claim]]
says = "compiled costs less"
left = { engine = "compiled" }
right = { engine = ENGINE }
where = { method = "bnp" }
metric = "train_seconds"
ratio = { at_most = 1.0 }
"""
REFERENCE = """
[[reference]]
cell = { method = "bnp", WORDS }
metric = "train_seconds"
value = 1.0
source = "a paper"
"""


def document(path: Path) -> dict[str, Any]:
    loaded = load_suite(path)
    return loaded.document(loaded.cells(device="cpu", threads=3)).document()


def test_what_auto_stands_for_is_named(tmp_path: Path) -> None:
    told = document(suite(tmp_path, ENGINES + CLAIM.replace("ENGINE", '"eager"')))
    engines = {cell["key"]: cell["settings"]["engine"] for cell in told["cells"]}
    (combination,) = told["claims"][0]["combinations"]
    assert [engines[combination[side]["1"]] for side in ("left", "right")] == ["compiled", "eager"]
    with pytest.raises(SuiteError, match=r'claim.0..right.engine: "auto" is replaced .* "eager" or "graphed"'):
        load_suite(suite(tmp_path, ENGINES + CLAIM.replace("ENGINE", '"auto"')))


@pytest.mark.parametrize("words", ["threads = 3", 'device = "cpu"', 'device = "cpu", engine = ["eager", "graphed"]'])
def test_a_reference_names_it_too(words: str, tmp_path: Path) -> None:
    text = SUITE.replace("threads = 1\n", "").replace("seed = [1, 2]", "seed = [1]") + REFERENCE
    (reference,) = document(suite(tmp_path, text.replace("WORDS", words)))["references"]
    assert len(reference["cells"]) == 1
    with pytest.raises(SuiteError, match=r'cell.threads: "auto" is replaced .* a number'):
        load_suite(suite(tmp_path, text.replace("WORDS", 'threads = ["auto", 3]')))


def test_what_auto_never_stands_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="no cell has this engine"):
        load_suite(suite(tmp_path, SUITE + REFERENCE.replace("WORDS", 'engine = "compiled"')))


def test_a_setting_that_is_given_comes_before_auto(tmp_path: Path) -> None:
    """``device = "cpu"`` is the cell that has it written, whatever "auto" becomes."""
    text = ENGINES.replace("seed = [1]", 'seed = [1]\ndevice = ["auto", "cpu"]')
    claim = CLAIM.replace("ENGINE", '"eager"').replace('method = "bnp"', 'method = "bnp", device = "cpu"')
    assert len(document(suite(tmp_path, text + claim))["claims"][0]["combinations"]) == 1
