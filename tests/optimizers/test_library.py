"""Optimizers of pytorch-optimizer: installed or not, in which version, at which rate, in which engine."""

from __future__ import annotations

import copy
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from bnpbench import load_suite
from bnpbench.errors import NotApplicable, SuiteError
from bnpbench.optimizers import library
from bnpbench.optimizers.library import LibraryOptimizer
from tests.support.inprocess import run_here
from tests.support.kinds import made
from tests.support.others import NEEDS_OPTIMIZERS
from tests.support.training import trainer

KINDS = pytest.mark.parametrize("kind", ["kron", "shampoo", "soap"])
SUITE = """
[train]
dataset = { kind = "synthetic", shape = [4], train = 40, test = 10, classes = 3 }
network = { kind = "fc", hidden = [5] }
method = "vanilla"
batch_size = 4
epochs = 1
optimizer = { kind = "soap", OPTION }
"""


def suite(folder: Path, option: str) -> Path:
    path = folder / "a.toml"
    path.write_text(SUITE.replace("OPTION", option))
    return path


def test_without_the_library_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(library, "version", missing)
    message = (
        r"a.toml:8: train.optimizer.kind: soap needs pytorch-optimizer, which is not installed: pip install 'bnpbench"
    )
    with pytest.raises(SuiteError, match=message):
        load_suite(suite(tmp_path, "lr = 0.01"))


def test_what_it_needs_beside_the_library_is_asked_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_einsum(name: str) -> str:
        if name == "opt_einsum":
            raise PackageNotFoundError(name)
        return "4.1.0"

    monkeypatch.setattr(library, "version", without_einsum)
    assert made("optimizer", "soap").pinned().version == "4.1.0"
    with pytest.raises(SuiteError, match="kron needs opt_einsum, which is not installed: pip install 'bnpbench"):
        made("optimizer", "kron").pinned()


def test_the_version_of_what_it_needs_beside_the_library_is_a_setting_of_its_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: dict[str, list[str]] = {"kron": [], "soap": []}
    for number in ("3.3.0", "3.4.0"):
        versions = {"opt_einsum": number, "pytorch-optimizer": "4.1.0"}
        monkeypatch.setattr(library, "version", versions.__getitem__)
        for kind, found in texts.items():
            (tmp_path / "a.toml").write_text(SUITE.replace('"soap", OPTION', f'"{kind}"'))
            (cell,) = load_suite(tmp_path / "a.toml").cells(device="cpu", threads=1)
            found.append(cell.canonical)
    assert len(set(texts["kron"])) == 2
    assert ['"opt_einsum":"3.3.0"' in text for text in texts["kron"]] == [True, False]
    assert texts["soap"][0] == texts["soap"][1]
    assert "opt_einsum" not in texts["soap"][0]
    with pytest.raises(SuiteError, match=r"opt_einsum 3.4.0 is installed, and the suite is of 3.3.0"):
        made("optimizer", {"kind": "kron", "opt_einsum": "3.3.0"}).pinned()


def test_the_librarys_version_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for number in ("4.1.0", "4.2.0"):
        monkeypatch.setattr(library, "version", lambda name, number=number: number)
        (cell,) = load_suite(suite(tmp_path, "lr = 0.01")).cells(device="cpu", threads=1)
        assert f'"version":"{number}"' in cell.canonical
        keys.append(cell.key)
    assert keys[0] != keys[1]
    with pytest.raises(SuiteError, match=r"pytorch-optimizer 4.2.0 is installed, and the suite is of 4.1.0"):
        load_suite(suite(tmp_path, 'version = "4.1.0"'))


def test_where_the_engine_is_left_open_it_is_eager_on_a_gpu_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "version", lambda name: "4.1.0")
    (cell,) = load_suite(suite(tmp_path, "lr = 0.01")).cells(device="cuda", threads=1)
    assert cell.settings.engine == "eager"


@NEEDS_OPTIMIZERS
@KINDS
@pytest.mark.parametrize("engine", ["compiled", "graphed"])
def test_in_another_engine_it_is_not_applicable(kind: str, engine: str) -> None:
    with pytest.raises(NotApplicable, match=f"the steps of {kind} cannot be traced, so that it is not {engine}"):
        trainer(optimizer={"kind": kind}, engine=engine)


@NEEDS_OPTIMIZERS
@KINDS
def test_the_rate_is_read_before_each_step_and_never_written(kind: str) -> None:
    lr = torch.tensor(0.1)
    layer = nn.Linear(3, 2)
    optimizer = made("optimizer", kind).build(layer, lr, weight_decay=0.0)
    moved = []
    for rate in (0.1, 0.1, 0.0):  # the first step of SOAP moves nothing
        lr.fill_(rate)
        before = layer.weight.detach().clone()
        for parameter in layer.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        assert lr.item() == pytest.approx(rate)
        moved.append(not torch.equal(layer.weight.detach(), before))
    assert moved[1:] == [True, False]


@NEEDS_OPTIMIZERS
@KINDS
def test_a_matrix_that_cannot_be_decomposed_shows_in_the_loss(kind: str) -> None:
    """It was an error of the cell, which the next run took up again and for which finals waited."""
    layer = nn.Linear(3, 2)
    optimizer = made("optimizer", kind).build(layer, torch.tensor(0.1), weight_decay=0.0)
    for _ in range(3):  # the first step of SOAP moves nothing
        for parameter in layer.parameters():
            parameter.grad = torch.full_like(parameter, torch.inf)
        optimizer.step()
    assert not layer(torch.ones(1, 3)).isfinite().any()


@pytest.mark.regression
@NEEDS_OPTIMIZERS
def test_roots_of_one_step_alone_may_diverge(tmp_path: Path) -> None:
    text = SUITE.replace('"soap", OPTION', '"shampoo", lr = 1e6, every = 5').replace("epochs = 1", "epochs = 3")
    (tmp_path / "a.toml").write_text(text)
    assert run_here(load_suite(tmp_path / "a.toml"), tmp_path / "out").cells.status.to_list() == ["diverged"]


@pytest.mark.regression
@NEEDS_OPTIMIZERS
def test_a_step_that_failed_is_none_of_the_next_ones() -> None:
    """After a warm-up that diverged, weights and state are put back; no step moved them any more."""
    layer = nn.Linear(3, 2)
    optimizer = made("optimizer", "shampoo").build(layer, weight_decay=0.0)
    before = [copy.deepcopy(one.state_dict()) for one in (layer, optimizer)]
    for number, moved in ((float("nan"), False), (1.0, True)):
        layer.load_state_dict(before[0])
        optimizer.load_state_dict(copy.deepcopy(before[1]))
        for parameter in layer.parameters():
            parameter.grad = torch.full_like(parameter, number)
        optimizer.step()
        assert layer.weight.isfinite().all() == moved
    assert not layer.weight.equal(before[0]["weight"])


@pytest.mark.parametrize(
    "kind",
    ["adam", "adamw", "muon", *(pytest.param(name, marks=NEEDS_OPTIMIZERS) for name in ("kron", "shampoo", "soap"))],
)
def test_at_its_defaults_it_learns_digits(kind: str) -> None:
    """Five epochs of batches of 60; at 1e-3, which is the library's rate, Shampoo knew no more than at the start."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    optimizer = made("optimizer", kind).build(model, weight_decay=0.0)
    for _ in range(5):
        for batch in torch.randperm(1437)[:1380].view(-1, 60):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    right = model(images[1437:]).argmax(1) == labels[1437:]
    assert right.float().mean() > 0.75


def test_the_rate_is_read_back_only_where_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    lr, read, rates = torch.tensor(0.5), list[float](), list[float]()
    optimizer = torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=1.0)
    made("optimizer", "soap").follow(optimizer, lr)
    item = lr.item
    monkeypatch.setattr(lr, "item", lambda: read.append(value := item()) or value)
    for write in (None, None, lr.fill_, None, lr.copy_):
        if write is not None:
            write(lr / 2)
        optimizer.param_groups[0]["lr"] = 9.0  # as where a state was loaded
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [0.5, 0.5, 0.25, 0.25, 0.125]
    assert read == [0.5, 0.25, 0.125]


@NEEDS_OPTIMIZERS
@KINDS
def test_it_serves_every_parameter(kind: str) -> None:
    layer = nn.Linear(3, 2)
    assert made("optimizer", kind).parts(layer) == {kind: list(layer.parameters())}


def test_a_class_without_options_says_so() -> None:
    class Bare(LibraryOptimizer):
        library_name = "SOAP"

    bare: Any = Bare(kind="x", lr=0.1)
    with pytest.raises(NotImplementedError, match=r"Bare defines no options\(\)"):
        bare.options()
