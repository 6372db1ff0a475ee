"""What the suite package says of others' tables, held against those; the shipped suites; the JSON Schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from bnpbench.datasets import describe
from bnpbench.datasets.splits import split_sizes as split_sizes_of_data
from bnpbench.methods import build_model, not_applicable
from bnpbench.networks import reads
from bnpbench.results import CELLS, EPOCHS, STEPS
from bnpbench.suite import DATASETS, Settings, data_shape, json_schema, load_suite, shipped_suites, split_sizes
from bnpbench.suite import metrics as m
from bnpbench.suite.claims import rows_of, table_of_cells
from bnpbench.suite.document import Document
from bnpbench.suite.options import SETTINGS, kinds
from bnpbench.suite.vocabulary import StoredData, Synthetic

IDENTITIES = {"turn", "epoch", "step", "neuron", "seed", "batch_size", "devices", "threads"}  # say where, not how much


@pytest.mark.parametrize(("schema", "metrics"), [(EPOCHS, m.EPOCHS), (CELLS, m.CELLS), (STEPS, m.STEPS)])
def test_metrics_are_the_numeric_columns(schema: pa.Schema, metrics: frozenset[str]) -> None:
    numeric = {field.name for field in schema if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)}
    assert metrics | {"energy_joules"} == numeric - IDENTITIES | {"energy_joules"}


def test_where_a_metric_comes_from() -> None:
    names = ["train_seconds", "energy_joules", "parameters", "kappa_d", "reached"]
    assert [m.table_of(name) for name in names] == ["epochs", "epochs", "cells", "steps", "targets"]
    assert m.TIMES <= m.EPOCHS


@pytest.mark.parametrize(
    "options", [*(StoredData(kind=kind) for kind in kinds(SETTINGS["dataset"]) if kind in DATASETS)]
)
def test_shapes_of_stored_data(options: StoredData) -> None:
    theirs = describe(options)
    ours = data_shape(options)
    assert (ours.input, ours.classes, ours.train, ours.test) == (
        theirs.input,
        theirs.classes,
        theirs.train,
        theirs.test,
    )


def test_the_shape_of_synthetic_data() -> None:
    shape = data_shape(Synthetic(kind="synthetic", shape=(3, 4), classes=5, train=6, test=7))
    assert (shape.input, shape.classes, shape.train, shape.test) == ((3, 4), 5, 6, 7)


@pytest.mark.parametrize(("limit", "validation"), [(None, 0.0), (100, 0.0), (None, 0.1), (1293, 0.1), (7, 0.35)])
def test_the_split_is_that_of_the_data_sets(limit: int | None, validation: float) -> None:
    settings = load_suite("quick").cells(device="cpu", threads=1)[0].settings
    settings = settings.model_copy(update={"train_limit": limit, "validation": validation})
    assert split_sizes(settings) == split_sizes_of_data(1437, limit, validation)


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
    table = table_of_cells(cells)
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
    table = table_of_cells(cells)
    for reference in suite.references:
        assert len({cells[row].label for row in rows_of(table, reference.cell)}) == 1, reference


@pytest.mark.parametrize("name", ["cnn", "cnn-short", "fc-small-batch"])
def test_of_the_small_batches_only_batch_normalization_of_a_single_row_is_not_applicable(name: str) -> None:
    """Figures 4 and 5 draw every other curve; they say of renormalization at batch size 1 that it does not train."""
    cells = load_suite(name).cells(device="cpu", threads=2)
    missing = set()
    for (label, batch_size), settings in {(c.label, c.settings.batch_size): c.settings for c in cells}.items():
        model = build_model(settings, (3, 32, 32), 10, torch.Generator())
        if not_applicable(model, reads(settings.network, (3, 32, 32)), batch_size):
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


# --- the JSON Schema --------------------------------------------------------------------------


def test_the_schema_knows_every_key() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["properties"].keys() == Document.model_fields.keys()
    for table in (
        schema["properties"]["train"],
        schema["properties"]["sweep"],
        schema["$defs"]["Override"]["properties"]["set"],
    ):
        assert table["properties"].keys() == SETTINGS.keys() == Settings.model_fields.keys() - {"plugins"}
        assert table["additionalProperties"] is False
    assert schema["$defs"]["Side"]["properties"].keys() == SETTINGS.keys() | {"at"}
    for name, hint in SETTINGS.items():
        if kinds(hint):
            assert schema["properties"]["train"]["properties"][name]["anyOf"][0] == {"enum": list(kinds(hint))}


def test_every_reference_of_the_schema_leads_somewhere() -> None:
    schema = json_schema()
    referred = set(_references(schema))
    assert referred
    assert {reference.removeprefix("#/$defs/") for reference in referred} <= schema["$defs"].keys()


def test_the_schema_lets_a_part_of_a_table_stand() -> None:
    """As in ``set = { optimizer.lr = 0.5 }``, which every kind of optimizer could be the whole of."""
    schema = json_schema()
    _, tables = schema["$defs"]["Override"]["properties"]["set"]["properties"]["optimizer"]["anyOf"]
    assert {part["$ref"] for part in tables["anyOf"]} == {"#/$defs/Sgd", "#/$defs/Adam"}
    assert "required" not in schema["$defs"]["Sgd"]
    assert "required" in schema["$defs"]["Claim"]


def _references(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [value for key, value in part.items() if key == "$ref"]
        return own + [reference for value in part.values() for reference in _references(value)]
    return [reference for item in part for reference in _references(item)] if isinstance(part, list) else []


def test_suites_need_neither_torch_nor_pandas() -> None:
    code = (
        "import sys; from bnpbench.suite import load_suite; load_suite('quick').cells(device='cpu', threads=1); "
        "print([name for name in ('torch', 'pandas', 'pyarrow') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
