"""Keys: the same for the same settings, however they are written, today and tomorrow."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnpbench.errors import SuiteError
from bnpbench.suite import Block, Cell, Measure, Probe, Settings, Suite, load_suite
from tests.support.suite_texts import SMALL, changed

Load = Callable[[str], Suite]


def every_setting() -> Settings:
    """A cell that differs from every default."""
    return Settings.model_validate(
        {
            "dataset": {"kind": "synthetic", "shape": (3, 32, 32), "classes": 4, "train": 1000, "test": 100, "seed": 5},
            "network": {"kind": "resnet", "depth": 20, "preactivation": True},
            "method": {
                "kind": "bnp+gn",
                "label": "BNP+GN",
                "rho": 0.9,
                "eps1": 0.0,
                "eps2": 1e-5,
                "statistics": "batch",
                "scale": False,
                "center": False,
                "standardize": False,
                "first_layer": False,
                "form": "plain",
                "layers": ("stage1.*",),
                "groups": 4,
                "group_eps": 1e-3,
                "position": "pre",
            },
            "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True},
            "batch_size": 128,
            "epochs": 160,
            "seed": 7,
            "device": "cuda",
            "engine": "eager",
            "threads": 4,
            "precision": "bf16",
            "memory_format": "channels_last",
            "deterministic": True,
            "schedule": {
                "kind": "steps",
                "epochs": (80, 120),
                "factor": 0.5,
                "warmup": {"kind": "linear", "start": 0.01, "epochs": 2},
            },
            "initialization": {"kind": "he-normal", "factor": 0.1},
            "weight_decay": {"value": 1.5e-4, "where": "l2"},
            "clip_norm": 1.0,
            "clip_adaptive": 0.01,
            "metrics": ({"kind": "top-k", "k": 3},),
            "label_smoothing": 0.1,
            "accumulate": 2,
            "augment": "crop-flip",
            "train_limit": 500,
            "validation": 0.1,
            "plugins": ("00" * 32,),
        }
    )


GOLDEN = [
    (
        {
            "dataset": {"kind": "digits"},
            "network": {"kind": "fc", "hidden": (100, 100)},
            "method": {"kind": "bnp"},
            "optimizer": {"kind": "sgd", "lr": 0.5},
            "batch_size": 60,
            "epochs": 8,
            "device": "cpu",
            "engine": "eager",
            "threads": 1,
        },
        "bd24c2b0a813",
        '{"batch_size":60,"dataset":{"kind":"digits"},"device":"cpu","engine":"eager","epochs":8,'
        '"method":{"kind":"bnp"},"network":{"hidden":[100,100],"kind":"fc"},"optimizer":{"kind":"sgd",'
        '"lr":0.5},"threads":1}',
    ),
    (
        {
            "dataset": {"kind": "cifar10"},
            "network": {"kind": "cnn"},
            "method": {"kind": "bn", "label": "BN", "eps": 1e-5, "momentum": 0.1, "inference": "running"},
            "optimizer": {"kind": "adam"},
            "batch_size": 2,
            "epochs": 1,
            "seed": 3,
            "device": "cuda",
            "engine": "eager",
            "threads": 8,
            "schedule": {"kind": "constant", "warmup": {"kind": "constant", "start": 0.01, "iterations": 400}},
            "weight_decay": {"value": 1},
            "validation": 0.1,
        },
        "1a04a4d83c53",
        '{"batch_size":2,"dataset":{"kind":"cifar10"},"device":"cuda","engine":"eager","epochs":1,'
        '"method":{"eps":1e-05,"kind":"bn","momentum":0.1},"network":{"kind":"cnn"},'
        '"optimizer":{"kind":"adam"},"schedule":{"kind":"constant","warmup":{"iterations":400,'
        '"kind":"constant","start":0.01}},"seed":3,"threads":8,"validation":0.1,"weight_decay":{"value":1.0}}',
    ),
    (
        {
            "dataset": {"kind": "digits"},
            "network": {"kind": "fc", "hidden": (100, 100)},
            "method": {"kind": "bn", "sync": False},
            "optimizer": {"kind": "sgd", "lr": 0.5},
            "batch_size": 60,
            "epochs": 8,
            "device": "cpu",
            "devices": 2,
            "engine": "eager",
            "threads": 1,
        },
        "32445b5e5c5b",
        '{"batch_size":60,"dataset":{"kind":"digits"},"device":"cpu","devices":2,"engine":"eager","epochs":8,'
        '"method":{"kind":"bn","sync":false},"network":{"hidden":[100,100],"kind":"fc"},"optimizer":{"kind":"sgd",'
        '"lr":0.5},"threads":1}',
    ),
    (
        every_setting().model_dump(
            exclude={
                "clip_norm": True,
                "clip_adaptive": True,
                "metrics": True,
                "label_smoothing": True,
                "accumulate": True,
                "method": {"layers"},
            }
        ),
        "597207a2b574",
        '{"augment":"crop-flip","batch_size":128,"dataset":{"classes":4,"kind":"synthetic","seed":5,'
        '"shape":[3,32,32],"test":100,"train":1000},"deterministic":true,"device":"cuda","engine":"eager",'
        '"epochs":160,"initialization":{"factor":0.1,"kind":"he-normal"},"memory_format":"channels_last",'
        '"method":{"center":false,"eps1":0.0,'
        '"eps2":1e-05,"first_layer":false,"form":"plain","group_eps":0.001,"groups":4,"kind":"bnp+gn","position":"pre",'
        '"rho":0.9,"scale":false,"standardize":false,"statistics":"batch"},"network":{"depth":20,'
        '"kind":"resnet","preactivation":true},"optimizer":{"kind":"sgd","lr":0.05,"momentum":0.9,'
        '"nesterov":true},"plugins":["0000000000000000000000000000000000000000000000000000000000000000"],'
        '"precision":"bf16","schedule":{"epochs":[80,120],"factor":0.5,"kind":"steps","warmup":{"epochs":2,"kind":"linear",'
        '"start":0.01}},"seed":7,"threads":4,"train_limit":500,"validation":0.1,'
        '"weight_decay":{"value":0.00015,"where":"l2"}}',
    ),
]


@pytest.mark.parametrize(("told", "key", "canonical"), GOLDEN)
def test_golden_keys(told: dict[str, Any], key: str, canonical: str) -> None:
    """A change here loses every result there is: defaults and spellings change by a step of SCHEMA_VERSION only."""
    cell = Cell(Settings.model_validate(told))
    assert cell.canonical == canonical
    assert cell.key == key


def test_every_default_is_differed_from() -> None:
    """So that the last golden key notices a renamed or retyped setting wherever it stands; the third has devices."""
    told = json.loads(Cell(every_setting()).canonical)
    # the golden key before has devices, and of the losses there is one
    assert told.keys() == Settings.model_fields.keys() - {"devices", "loss"}
    assert told["method"].keys() == type(every_setting().method).model_fields.keys() - {"label", "channels_per_group"}


def test_the_key_begins_the_hash_of_the_canonical_text() -> None:
    cell = Cell(every_setting())
    assert cell.key == hashlib.sha256(cell.canonical.encode()).hexdigest()[:12]
    assert json.dumps(json.loads(cell.canonical), sort_keys=True, separators=(",", ":")) == cell.canonical


def test_a_cell_comes_back_from_its_canonical_text() -> None:
    cell = Cell(every_setting())
    again = Cell.from_canonical(cell.canonical)
    assert (again.canonical, again.key, again.role) == (cell.canonical, cell.key, "final")
    assert again.settings == cell.settings.model_copy(
        update={"method": cell.settings.method.model_copy(update={"label": None})}
    )
    assert Cell.from_canonical(cell.canonical, "trial").role == "trial"


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "null", '{"batch_size":"x"}'])
def test_a_text_that_is_no_cell_is_refused(text: str) -> None:
    with pytest.raises(SuiteError, match="settings that this version of bnpbench does not know"):
        Cell.from_canonical(text)


def test_cells_and_blocks_travel_between_processes() -> None:
    block = Block((Cell(every_setting(), "trial", "0 1"),), Measure(warmup_epochs=1), Probe(layer="output"))
    again = pickle.loads(pickle.dumps(block))
    assert again == block
    assert again.id == block.id
    assert again.cells[0].key == block.cells[0].key
    assert len({again.cells[0], block.cells[0]}) == 1


def test_the_label_is_no_setting(load: Load) -> None:
    plain = load(SMALL).cells(device="cpu", threads=1)
    named = load(changed(SMALL, '"bnp"', '{ kind = "bnp", label = "ours" }')).cells(device="cpu", threads=1)
    assert [cell.key for cell in named] == [cell.key for cell in plain]
    assert {cell.label for cell in named} == {"vanilla", "bn", "ours"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"bnp"', '{ kind = "bnp" }'),
        ('"bnp"', '{ statistics = "running", rho = 0.99, kind = "bnp" }'),
        ("lr = 0.1", "lr = 1e-1, momentum = 0.0, nesterov = false"),
        ("lr = 0.1", "lr = 0.1, momentum = -0.0"),
        ("epochs = 20", 'epochs = 20\nschedule = "constant"\nweight_decay = 0\nvalidation = 0'),
        ("epochs = 20", "epochs = 20\nweight_decay = { value = -0.0 }\nvalidation = -0.0"),
        ("[1, 2, 3]", "[3, 1, 2]"),
        ('name = "small"', 'name = "other"\ndescription = "the same cells"'),
        ("epochs = 20", 'epochs = 20\ndevice = "cpu"\nthreads = 2\nengine = "eager"'),
        ('"digits"', '{ kind = "digits" }'),
    ],
)
def test_the_spelling_does_not_matter(load: Load, old: str, new: str) -> None:
    keys = {cell.key for cell in load(SMALL).cells(device="cpu", threads=2)}
    assert {cell.key for cell in load(changed(SMALL, old, new)).cells(device="cpu", threads=2)} == keys


def test_every_setting_matters() -> None:
    """No two cells that differ in one setting share a key."""
    told = every_setting().model_dump()
    keys = {Cell(every_setting()).key}
    changes: list[dict[str, Any]] = [{name: plain} for name, plain in _defaults().items()]
    changes += [{"batch_size": 64}, {"epochs": 1}, {"dataset": {"kind": "cifar10"}}, {"network": {"kind": "cnn"}}]
    changes += [{"devices": 2}]
    changes += [{"method": {"kind": "bn"}}, {"optimizer": {"kind": "adam"}}, {"plugins": ("11" * 32,)}]
    for change in changes:
        keys.add(Cell(Settings.model_validate({**told, **change})).key)
    assert len(keys) == 1 + len(changes)


def _defaults() -> dict[str, Any]:
    same = {"device", "devices", "engine", "loss"}  # as every_setting has them, or "auto" alone
    found = {n: f.get_default() for n, f in Settings.model_fields.items() if not f.is_required() and n not in same}
    return {**found, "device": "cpu"}


STATISTICS = st.sampled_from(["running", "batch"])
METHODS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("vanilla")}),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["bn", "bn-pre"])},
        optional={"eps": st.floats(1e-8, 1), "inference": st.sampled_from(["running", "averaged"])},
    ),
    st.fixed_dictionaries(
        {"kind": st.just("bnp")},
        optional={
            "rho": st.floats(0, 0.999),
            "scale": st.booleans(),
            "statistics": st.sampled_from(["running", "batch"]),
        },
    ),
)


@settings(deadline=None)
@given(one=METHODS, other=METHODS, shuffled=st.randoms())
def test_keys_are_equal_exactly_for_equal_settings(one: dict[str, Any], other: dict[str, Any], shuffled: Any) -> None:
    told = GOLDEN[0][0]
    cells = [Cell(Settings.model_validate({**told, "method": method})) for method in (one, other)]
    assert (cells[0].key == cells[1].key) == (cells[0].settings == cells[1].settings)
    mixed = list(one.items())
    shuffled.shuffle(mixed)
    assert Cell(Settings.model_validate({**told, "method": dict(mixed)})).key == cells[0].key
    assert Cell.from_canonical(cells[0].canonical).settings == cells[0].settings


# --- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "label"),
    [
        ({"kind": "bnp"}, "bnp"),
        ({"kind": "bnp", "statistics": "running"}, "bnp"),
        ({"kind": "bnp", "statistics": "batch"}, "bnp(statistics=batch)"),
        ({"kind": "bnp", "scale": False, "rho": 0.9}, "bnp(rho=0.9, scale=false)"),
        ({"kind": "bn", "eps": 1e-5}, "bn(eps=1e-05)"),
        ({"kind": "gn", "groups": 8}, "gn(groups=8)"),
        ({"kind": "4things", "ghost_batch": None}, "4things(ghost_batch=None)"),
        ({"kind": "bn", "eps": 1e-5, "label": "bn"}, "bn"),
    ],
)
def test_labels(method: dict[str, Any], label: str) -> None:
    assert Cell(Settings.model_validate({**GOLDEN[0][0], "method": method})).label == label


# --- plugins ----------------------------------------------------------------------------------


def test_a_plugin_is_hashed_into_every_key(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('plugins = ["parts/norms.py"]\n' + SMALL)
    (tmp_path / "parts").mkdir()
    text = "from typing import Literal\nfrom bnpbench import MethodPlugin\n"
    text += "class Own(MethodPlugin):\n    preconditioned = True\n    kind: Literal['own']\n"
    (tmp_path / "parts" / "norms.py").write_text(text)
    with pytest.raises(SuiteError, match="--allow-plugins"):
        load_suite(tmp_path / "a.toml")
    first = load_suite(tmp_path / "a.toml", allow_plugins=True).cells(device="cpu", threads=1)
    assert {cell.settings.plugins for cell in first} == {(hashlib.sha256(text.encode()).hexdigest(),)}
    (tmp_path / "parts" / "norms.py").write_text(text + "# other\n")
    second = load_suite(tmp_path / "a.toml", allow_plugins=True).cells(device="cpu", threads=1)
    assert not {cell.key for cell in first} & {cell.key for cell in second}


def test_a_plugin_that_is_not_there_or_lies_outside_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside.py").write_text("")
    (inside / "link.py").symlink_to(tmp_path / "outside.py")
    for name, message in {"none.py": "no such file", "link.py": "inside the suite's folder"}.items():
        (inside / "a.toml").write_text(f'plugins = ["{name}"]\n' + SMALL)
        with pytest.raises(SuiteError, match=message) as caught:
            load_suite(inside / "a.toml", allow_plugins=True)
        assert (caught.value.line, caught.value.key) == (1, "plugins[0]")
