"""Networks that functions of a user's make."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from bnpbench.errors import SuiteError
from bnpbench.networks.imported import admit
from bnpbench.sites import Normalization
from tests.support.kinds import made

NATIVE = Normalization(native=True)
FACTORIES = """
from torch import nn
class Holder:
    @staticmethod
    def make(classes, input_shape, width=2):
        return nn.Sequential(nn.Linear(input_shape[0], width), nn.Linear(width, classes))
def other(num_classes):
    return nn.Linear(3, num_classes)
def number():
    return 3
"""


@pytest.fixture
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "factories_of_a_test.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)
    admit(["factories_of_a_test", "no_such_module_here"])


@pytest.mark.usefixtures("_module")
def test_the_function_is_told_what_it_asks_for() -> None:
    network = {"kind": "import", "target": "factories_of_a_test:Holder.make", "options": {"width": 4}}
    assert [tuple(layer.weight.shape) for layer in made("network", network).built(NATIVE, (6,), 5)] == [(4, 6), (5, 4)]
    other = {"kind": "import", "target": "factories_of_a_test:other", "options": {"num_classes": 9}}
    assert made("network", other).built(NATIVE, (3,), 5).out_features == 9


@pytest.mark.usefixtures("_module")
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("factories_of_a_test:number", "gives a int, not a torch.nn.Module"),
        ("factories_of_a_test:none", "AttributeError"),
        ("no_such_module_here:make", "ModuleNotFoundError"),
    ],
)
def test_what_makes_no_network_is_told(target: str, words: str) -> None:
    with pytest.raises(SuiteError, match=f"{target}.*{words}"):
        made("network", {"kind": "import", "target": target}).built(NATIVE, (3,), 5)


@pytest.mark.parametrize("target", ["module", "module:", ":make", "a b:make", "module:make()", "../module:make"])
def test_a_target_is_a_module_and_a_function(target: str) -> None:
    with pytest.raises(ValidationError):
        made("network", {"kind": "import", "target": target})


@pytest.mark.regression
def test_what_nobody_allowed_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "never_allowed.py").write_text(f"open({str(tmp_path / 'found')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SuiteError, match="nobody allowed that 'never_allowed' is run"):
        made("network", {"kind": "import", "target": "never_allowed:make"}).built(NATIVE, (3,), 5)
    assert not (tmp_path / "found").exists()
