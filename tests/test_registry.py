"""One registry of everything that a suite names by a kind."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

import bnpbench
from bnpbench import Ink, MethodPlugin, NetworkPlugin, Results, load_suite, run_suite
from bnpbench.datasets.base import DatasetPlugin
from bnpbench.errors import DataError, SuiteError
from bnpbench.optimizers.base import OptimizerPlugin
from bnpbench.registry import BASES, base_of, built_in, noun, ships
from bnpbench.report.data import views
from bnpbench.report.figures import inks

PACKAGE = Path(bnpbench.__file__).parent
KINDS = {
    kind for base in (MethodPlugin, NetworkPlugin, DatasetPlugin, OptimizerPlugin) for kind in built_in().kinds(base)
}


class Named(MethodPlugin):
    preconditioned = True
    kind: Literal["named"]


def words(path: Path) -> set[str]:
    """The string constants of a module, docstrings and the paths of imports apart."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return {str(node.value) for node in constants if id(node) not in docstrings}


def test_a_kind_is_written_in_one_module() -> None:
    found = Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        found.update(words(path) & KINDS)
    assert found.pop("text") >= 1  # a key of the page's data, too
    packages = {"torchvision": 2}  # whose version is recorded
    assert found == dict.fromkeys(KINDS - {"text"}, 1) | packages


def test_every_base_has_its_kinds_and_every_kind_its_name() -> None:
    assert [noun(base) for base in BASES] == [
        "method",
        "network",
        "dataset",
        "optimizer",
        "schedule",
        "initialization",
        "loss",
        "metric",
    ]
    for base in BASES:
        known = built_in().kinds(base)
        assert list(known) == sorted(known)
        assert all(cls.word() == kind and base_of(cls) is base and ships(cls) for kind, cls in known.items())


def test_a_registry_with_plugins_is_a_new_one() -> None:
    more = built_in().plus([Named])
    assert more.kinds(MethodPlugin)["named"] is Named
    assert "named" not in built_in().kinds(MethodPlugin)
    assert not ships(Named)
    with pytest.raises(SuiteError, match="there is a method 'named' already; choose another kind"):
        more.plus([Named])


def test_a_data_set_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(DataError, match=r"no data set 'cifar11'; did you mean 'cifar1"):
        built_in().dataset("cifar11")
    with pytest.raises(DataError, match="there are cifar10, cifar100, digits"):
        built_in().dataset("?")


# --- one file a method -----------------------------------------------------------------------

SUITE = """
name = "own"
plugins = ["shifted.py"]
[train]
dataset = { kind = "synthetic", shape = [6], classes = 3, train = 60, test = 30 }
network = { kind = "fc", hidden = [5, 4] }
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 10
epochs = 2
threads = 1
[sweep]
method = [METHODS]
"""
SHIFTED = '''
"""A method of one's own: a layer, a penalty, a published cost, and how it is drawn."""

from typing import ClassVar, Literal

from bnpbench import Decay, Ink, MethodPlugin, Misfit, Published


class Shifted(MethodPlugin):
    """Adds a trained number to every feature, and pulls it to 0."""

    ink: ClassVar = Ink("#123456", "#654321", "*")
    kind: Literal["shifted"]
    decay: float = 0.5

    def layer(self, features, spatial_dims, site):
        import torch
        from torch import nn

        class Shift(nn.Module):
            def __init__(self):
                super().__init__()
                self.shift = nn.Parameter(torch.ones(features))

            def forward(self, x):
                return x + self.shift

        return Shift()

    def decays(self, model):
        return [Decay(self.decay, [value for name, value in model.named_parameters() if name.endswith("shift")])]

    def published(self, model, batch):
        return Published(predicted=9 * len(batch), counted=None)

    def undivided(self, layer, features):
        return Misfit(f"{layer} has too few features") if features < 3 else None


class Conditioned(MethodPlugin):
    """The gradients of BNP with its defaults, on any network."""

    preconditioned = True
    kind: Literal["conditioned"]
'''


def own(tmp_path: Path, methods: str) -> Any:
    (tmp_path / "shifted.py").write_text(SHIFTED)
    (tmp_path / "own.toml").write_text(SUITE.replace("METHODS", methods))
    return load_suite(tmp_path / "own.toml", allow_plugins=True)


def losses_of(results: Results) -> dict[str, Any]:
    """Label to the losses of its epochs."""
    told = ["epoch", "train_loss", "train_accuracy", "test_loss"]
    epochs = results.epochs.merge(results.cells[["key", "label"]], on="key")
    return {label: of_it[told].reset_index(drop=True) for label, of_it in epochs.groupby("label")}


def test_one_file_adds_a_method_with_a_layer_a_decay_a_cost_and_a_colour(tmp_path: Path) -> None:
    results = run_suite(own(tmp_path, '"vanilla", "shifted", { kind = "shifted", decay = 2.5 }'), tmp_path / "out")
    cells = results.cells.set_index("label")
    assert set(cells.status) == {"ok"}
    assert cells.flops_method_predicted["shifted"] == 90
    assert cells.parameters["shifted"] == cells.parameters["vanilla"] + 5 + 4
    losses = losses_of(results)
    assert not losses["shifted"].equals(losses["shifted(decay=2.5)"])


def test_a_report_draws_a_method_of_ones_own_in_its_own_colour(tmp_path: Path) -> None:
    results = run_suite(own(tmp_path, '"vanilla", "shifted"'), tmp_path / "out")
    drawn = inks(views(results))
    assert drawn["shifted"] == Ink("#123456", "#654321", "*")
    assert drawn["vanilla"] == built_in().kinds(MethodPlugin)["vanilla"].ink


@pytest.mark.parametrize(
    "entry", [None, 3, {}, {"light": "red", "dark": "#000000", "marker": "o"}, {"light": "#000000", "dark": "#000000"}]
)
def test_an_ink_of_a_stranger_that_cannot_be_drawn_is_none(entry: Any) -> None:
    assert Ink.read(entry) is None


def test_a_method_with_nothing_but_the_word_has_bnps_gradients(tmp_path: Path) -> None:
    results = run_suite(own(tmp_path, '"bnp", "conditioned"'), tmp_path / "out")
    losses = losses_of(results)
    assert losses["bnp"].equals(losses["conditioned"])


def test_a_method_that_does_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shifted.py").write_text(
        "from typing import Literal\nfrom bnpbench import MethodPlugin\n\n\n"
        'class Nothing(MethodPlugin):\n    kind: Literal["nothing"]\n'
    )
    (tmp_path / "own.toml").write_text(SUITE.replace("METHODS", '"nothing"'))
    with pytest.raises(SuiteError, match=r"shifted\.py:5: Nothing defines no layer\(\), preconditioner"):
        load_suite(tmp_path / "own.toml", allow_plugins=True)
