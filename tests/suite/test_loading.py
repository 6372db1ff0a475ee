"""Suites that ship with bnpbench, and how a suite is found and named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bnpbench.errors import SuiteError
from bnpbench.suite import load_suite, shipped_suites
from bnpbench.suite.claims import rows_of, table_of_cells
from bnpbench.training.models import build_model, not_applicable
from tests.support.suite_texts import SMALL, changed

SIZES = changed(SMALL, "[train]", "[train]\ntrain_limit = 20")
"""A batch of 256 is more than there is to train on."""


@pytest.mark.regression
def test_cells_that_are_not_asked_for_may_need_more_data(tmp_path: Path) -> None:
    path = tmp_path / "sizes.toml"
    path.write_text(SIZES)
    suite = load_suite(path, only=["batch_size=16", "method=bn"])
    asked = suite.cells(device="cpu", threads=1, only=["batch_size=16", "method=bn"])
    assert {(cell.settings.batch_size, cell.label) for cell in asked} == {(16, "bn")}
    whole = suite.cells(device="cpu", threads=1)
    assert len(suite.document(whole).cells) == len(whole) > len(asked)


@pytest.mark.regression
@pytest.mark.parametrize("only", [[], ["batch_size=16,256"], ["method=bn"], ["device=cpu"], ["epochs=7"]])
def test_cells_that_are_or_may_be_asked_for_are_judged(tmp_path: Path, only: list[str]) -> None:
    path = tmp_path / "sizes.toml"
    path.write_text(SIZES)
    with pytest.raises(SuiteError, match="more than the training data"):
        load_suite(path, only=only)


# --- shipped suites ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(shipped_suites()))
def test_a_shipped_suite_loads_and_is_named_as_its_file(name: str) -> None:
    suite = load_suite(name)
    assert suite.name == name
    assert suite.path == shipped_suites()[name]
    assert suite.source
    assert suite.description
    assert suite.cells(device="cpu", threads=2)


def test_quick_is_the_four_methods_at_three_batch_sizes_with_three_seeds() -> None:
    cells = load_suite("quick").cells(device="cpu", threads=2)
    assert len(cells) == 36
    assert {c.label for c in cells} == {"vanilla", "bn", "ln", "bnp"}
    assert {c.settings.batch_size for c in cells} == {1, 6, 60}
    assert {c.settings.seed for c in cells} == {1, 2, 3}
    assert {c.settings.dataset.kind for c in cells} == {"digits"}


def test_timing_is_table_1_of_the_paper() -> None:
    suite = load_suite("timing")
    cells = suite.cells(device="cpu", threads=2)
    assert [(c.label, c.settings.batch_size) for c in cells] == [
        (method, n) for n in (16, 256, 512) for method in ("vanilla", "bn", "bn-hidden", "bnp")
    ]
    assert {(c.settings.epochs, c.settings.seed, c.settings.dataset.kind) for c in cells} == {(20, 1, "cifar10")}
    assert [len(block.cells) for block in suite.blocks(cells)] == [4, 4, 4]
    for label, of_the_input in [("bn", True), ("bn-hidden", False)]:
        bn = next(c.data["method"] for c in cells if c.label == label)
        assert (bn["eps"], bn["momentum"], bn["input"]) == (1e-5, 0.1, of_the_input)
    table = table_of_cells(cells, suite.words)
    published = {cells[row].canonical: r.value for r in suite.references for row in rows_of(table, r.cell)}
    assert {(c.label, c.settings.batch_size): published[c.canonical] for c in cells if c.canonical in published} == {
        ("bn", 16): 16.08,
        ("bn", 256): 10.81,
        ("bn", 512): 10.67,
        ("bnp", 16): 16.69,
        ("bnp", 256): 10.70,
        ("bnp", 512): 10.57,
    }


@pytest.mark.parametrize("name", sorted(shipped_suites()))
def test_a_published_figure_stands_beside_one_method(name: str) -> None:
    """With ``input = true | false`` a kind alone may pick two."""
    suite = load_suite(name)
    cells = suite.cells(device="cpu", threads=2)
    table = table_of_cells(cells, suite.words)
    for reference in suite.references:
        assert len({cells[row].label for row in rows_of(table, reference.cell)}) == 1, reference


@pytest.mark.parametrize("name", ["cnn", "cnn-short", "fc-small-batch"])
def test_of_the_small_batches_only_batch_normalization_of_a_single_row_is_not_applicable(name: str) -> None:
    """Figures 4 and 5 draw every other curve; they say of renormalization at batch size 1 that it does not train."""
    cells = load_suite(name).cells(device="cpu", threads=2)
    missing = set()
    for (label, batch_size), settings in {(c.label, c.settings.batch_size): c.settings for c in cells}.items():
        model = build_model(settings, (3, 32, 32), 10, torch.Generator())
        if not_applicable(model, settings.network.reads((3, 32, 32)), batch_size):
            missing.add((label, batch_size))
    assert missing == {("bn", 1), ("bn-hidden", 1)}


def test_a_path_object_is_never_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quick").write_text(shipped_suites()["timing"].read_text())
    assert load_suite(Path("quick")).name == "timing"
    assert load_suite("./quick").name == "timing"
    assert load_suite("quick").name == "quick"


def test_a_suite_without_a_name_has_its_files(tmp_path: Path) -> None:
    text = shipped_suites()["timing"].read_text().replace('name = "timing"\n', "")
    (tmp_path / "mine.toml").write_text(text)
    assert load_suite(tmp_path / "mine.toml").name == "mine"


def test_suites_need_neither_torch_nor_pandas() -> None:
    code = (
        "import sys; from bnpbench.suite import load_suite; load_suite('quick').cells(device='cpu', threads=1); "
        "print([name for name in ('torch', 'pandas', 'pyarrow') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_change_is_a_setting_of_every_cell_whatever_the_file_says() -> None:
    suite = load_suite("quick", changes=["optimizer.lr=0.25", "train.epochs=2"])
    cells = suite.cells(device="cpu", threads=1)
    assert {cell.settings.optimizer.lr for cell in cells} == {0.25}
    assert {cell.settings.epochs for cell in cells} == {2}
    assert len(cells) == len(load_suite("quick").cells(device="cpu", threads=1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("optimizer.momentumm=0.9", "--set optimizer.momentumm=0.9"),
        ("optimizer.lr=fast", "--set optimizer.lr=fast"),
        ("epochs=0", "--set epochs=0"),
        (
            "batch_size=7",
            "batch_size is an axis of the suite; --only batch_size=VALUE picks from it",
        ),
        ("method.rho=0.5", "--set method.rho=0.5: method is an axis"),
        ("epochs", '--set "epochs": write KEY=VALUE'),
        ("=3", '--set "=3": write KEY=VALUE'),
    ],
)
def test_a_change_that_cannot_be_names_itself(change: str, words: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load_suite("quick", changes=["threads=1", change])
    assert words in str(caught.value)
    assert "override" not in str(caught.value)


def test_a_misspelt_change_is_named_once_beside_what_the_suites_kind_has() -> None:
    """It stood there twice, and what other optimizers have was called valid."""
    with pytest.raises(SuiteError) as caught:
        load_suite("quick", changes=["optimizer.lrr=0.1"])
    assert str(caught.value) == (
        "--set optimizer.lrr=0.1: unknown key; valid here: kind, lr, momentum, nesterov (did you mean 'lr'?)"
    )


def test_a_baseline_that_no_method_has_is_refused_with_its_place(tmp_path: Path) -> None:
    text = Path(shipped_suites()["quick"]).read_text()
    file = tmp_path / "own.toml"
    file.write_text(text.replace("[report]\n", '[report]\nbaseline = "vanila"\n'))
    with pytest.raises(SuiteError, match=r"called 'vanila'.*did you mean 'vanilla'") as caught:
        load_suite(file)
    assert caught.value.line is not None
    file.write_text(text.replace("[report]\n", '[report]\nbaseline = "bn"\n'))
    assert load_suite(file).baseline == "bn"


@pytest.mark.parametrize(
    ("metric", "more", "message"),
    [
        ("test_bits_per_token", "", "no cell has test_bits_per_token: the data are no text"),
        ("validation_accuracy", "", "no cell has validation_accuracy: no example is held out"),
        ("validation_accuracy", '[select]\nover = "batch_size"\n', "no cell has validation_accuracy: no example is"),
    ],
)
def test_a_metric_that_no_cell_has_is_refused(tmp_path: Path, metric: str, more: str, message: str) -> None:
    """The test loss took its place in silence."""
    file = tmp_path / "own.toml"
    text = SMALL if not more else changed(SMALL, "epochs = 20", "epochs = 20\nvalidation = 0.1")
    file.write_text(f'{text}[report]\nmetric = "{metric}"\n{more}')
    with pytest.raises(SuiteError) as caught:
        load_suite(file)
    assert (caught.value.key, caught.value.message.startswith(message)) == ("report.metric", True)
    held = changed(SMALL, "epochs = 20", "epochs = 20\nvalidation = 0.1")
    file.write_text(f'{held}[report]\nmetric = "validation_accuracy"\n')
    assert load_suite(file).metric == "validation_accuracy"


def test_what_was_changed_stands_in_the_document() -> None:
    suite = load_suite("quick", changes=["optimizer.lr=0.25"])
    assert suite.document(suite.cells(device="cpu", threads=1)).changes == ["optimizer.lr=0.25"]
