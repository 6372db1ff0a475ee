"""The Python of the README runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.made_results import Made, epochs

README = Path(__file__).parents[1] / "README.md"


def block(word: str) -> str:
    """The one Python block of the README that has ``word`` in it."""
    (found,) = [code for code in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if word in code]
    return found


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_the_notebook_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    made = Made(tmp_path / "results", "quick")
    for seed, gain in enumerate((0.1, 0.2, 0.3)):
        made.cell("vanilla", 60, seed, epochs([1.0, 1.0], [0.4, 0.5]))
        made.cell("bnp", 60, seed, epochs([1.0, 1.0], [0.4, 0.5 + gain]))
        made.cell("bnp", 6, seed, epochs([1.0], [0.9]))
    made.read()
    exec(block("ttest_rel"), {})
    assert (tmp_path / "curves.png").stat().st_size > 1000
    assert "statistic=3.46" in re.sub(r"np\.float64\(([^)]*)\)", r"\1", capsys.readouterr().out)  # .2 / (.1 / sqrt(3))


def test_the_training_loop() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    batches = [(torch.randn(8, 5), torch.randint(3, (8,))) for _ in range(3)]
    before = [parameter.clone() for parameter in model.parameters()]
    scope = {
        "model": model,
        "batches": batches,
        "loss_fn": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    exec(block("bnp.precondition()"), scope)
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert scope["bnp"].layers == ("0", "2")


def test_the_condition_number_of_a_neuron(capsys: pytest.CaptureFixture) -> None:
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("fc1", nn.Linear(5, 4))
    model.add_module("relu", nn.ReLU())
    model.add_module("fc2", nn.Linear(4, 3))
    exec(block("kappa_hessian"), {"model": model, "images": torch.randn(40, 5)})
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.regression
def test_the_readme_parts_settings_by_no_comma() -> None:
    readme = README.read_text()
    assert not re.findall(r"--only \w+=[^ `,]+,\w+=", readme)
