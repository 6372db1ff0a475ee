"""What a child looks at before anything runs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bnpbench import load_suite
from bnpbench.errors import SuiteError
from bnpbench.execution.listing import build, listing
from bnpbench.execution.messages import Preflight, Smoke, Tried
from bnpbench.execution.options import Options
from bnpbench.execution.preflight import Generated, preflight, smoke
from bnpbench.suite import Cell, Settings
from bnpbench.training.examples import Resident
from tests.support.command import SUITE, suite


def test_generated_examples_look_like_the_data_set() -> None:
    settings = Settings.model_validate(
        {
            "dataset": {"kind": "cifar100"},
            "network": {"kind": "resnet", "depth": 8},
            "method": "bn",
            "optimizer": {"kind": "sgd", "lr": 0.1},
            "batch_size": 50,
            "epochs": 1,
            "validation": 0.1,
        }
    )
    made = Generated(settings, torch.device("cpu"))
    assert (made.input_shape, made.classes, len(made.labels)) == ((3, 32, 32), 100, 45_000)
    (one, images, labels), _ = made.training(torch.arange(100), 50, seed=0)
    assert (one.tolist(), labels.tolist()) == (list(range(50)), list(range(50)))
    assert images.shape == (50, 3, 32, 32)
    assert 0 <= images.min() < 0.2 < images.mean() < 0.8 < images.max() <= 1


def test_a_step_that_would_not_fit_is_not_tried() -> None:
    settings = {
        "dataset": {"kind": "synthetic", "shape": (1000,), "train": 2000, "test": 10},
        "network": {"kind": "fc", "hidden": (1000,)},
        "method": "vanilla",
        "optimizer": {"kind": "sgd", "lr": 0.1},
        "batch_size": 500,
        "epochs": 1,
        "device": "cpu",
        "threads": 1,
    }
    told: list[Tried] = []
    # 4 B x (500 x (1000 + 1000 + 10) kept, twice; 1,011,010 weights three times) are 20.2 MB
    for free in (15_000_000, 25_000_000):
        request = Smoke((Cell(Settings.model_validate(settings)),), None)
        smoke(request, told.append, free=lambda device, free=free: free)
    assert [one.status for one in told] == ["not tried", "finite"]
    assert "0.0 GiB of memory" in told[0].message


METRICS = """
from typing import Literal
from bnpbench import MetricPlugin


class Fault(MetricPlugin):
    kind: Literal["fault"]
    how: str

    @property
    def name(self):
        return self.how

    def sums(self, output, labels):
        import torch
        if self.how == "raises":
            raise ArithmeticError("no such number")
        return output[:, 0] if self.how == "rows" else torch.ones(3 if self.how == "vector" else 2)

    def value(self, sums):
        return sums if self.how == "vector" else sums[0] / sums[1]
"""
LINE = METRICS[: METRICS.index("raise ArithmeticError")].count("\n") + 1


@pytest.mark.regression
@pytest.mark.parametrize("network", ["fc", "gpt"])
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("fine", ""),
        ("vector", "score.vector: ValueError: fault.py: Fault.value gives a tensor of shape (3,), not one number"),
        ("rows", "score.rows: ValueError: fault.py: Fault.sums gives "),
        ("raises", f"score.raises: ArithmeticError: no such number (fault.py:{LINE})"),
    ],
)
def test_a_metric_that_fails_is_told_with_its_name(how: str, told: str, network: str, tmp_path: Path) -> None:
    """It was told after the first epoch of a run."""
    (tmp_path / "fault.py").write_text(METRICS)
    text = SUITE.replace("epochs = 2", f'epochs = 2\nmetrics = ["top-k", {{ kind = "fault", how = "{how}" }}]')
    text = text.replace('"tiny"', '"tiny"\nplugins = ["fault.py"]')
    if network == "gpt":
        text = "\n".join(line for line in text.splitlines() if not line.startswith(("dataset", "network")))
        (tmp_path / "a.txt").write_text("a number that is read " * 100)
        tokens = 'dataset = { kind = "text", path = "a.txt", context = 16 }\n'
        tokens += 'network = { kind = "gpt", width = 8, depth = 1 }'
        text = text.replace("[train]", f"[train]\n{tokens}")
    cells = load_suite(suite(tmp_path, text), allow_plugins=True).cells(device="cpu", threads=1)
    tried: list[Tried] = []
    smoke(Smoke(cells[:1], tmp_path), tried.append)
    (one,) = tried
    assert (one.status, one.message.startswith(told)) == ("error" if told else "finite", True), one.message
    assert told or not one.message


def test_streamed_images_are_rated_when_somebody_asks() -> None:
    """Rating them decodes thousands, which two steps do not wait for."""
    assert "rate" not in Resident.__dict__
    from bnpbench.training.examples import Streamed

    asked: list[tuple[int, int]] = []
    streamed = object.__new__(Streamed)
    streamed._batch_size = 7  # as its initializer, which reads files
    streamed.streams = SimpleNamespace(train=SimpleNamespace(rate=lambda *given: asked.append(given) or 5.0))  # type: ignore[assignment]
    assert asked == []
    assert (streamed.rate, streamed.rate) == (5.0, 5.0)
    assert asked == [(2000, 7)]


@pytest.mark.parametrize("kind", ["bnp", "foof"])
def test_a_pattern_that_fits_no_layer_is_refused_with_the_names_there_are(tmp_path: Path, kind: str) -> None:
    """Without another pattern the method had no meaning there, with one the others were taken in silence."""
    networks = 'network = [{ kind = "fc", hidden = [9] }, { kind = "fc", hidden = [9, 8] }]\n'
    method = f'"vanilla", {{ kind = "{kind}", layers = ["hidden1", "PATTERN"] }}'
    text = SUITE.replace('"vanilla", "bnp"', method) + networks
    for pattern, refused in (("hiden*", True), ("!outptu", True), ("hidden2", False), ("!output", False)):
        loaded = load_suite(suite(tmp_path, text.replace("PATTERN", pattern)))
        cells = loaded.cells(device="cpu", threads=1)
        told = f"no layer has a name like '{pattern}'; there are: hidden1, output, hidden2"
        with pytest.raises(SuiteError) if refused else nullcontext() as caught:
            preflight(Preflight(cells, None, True), print)
        assert refused == (caught is not None and told in str(caught.value) and "did you mean" in str(caught.value))
        if caught is not None:
            line = next(n for n, line in enumerate(loaded.path.read_text().splitlines(), 1) if "layers" in line)
            assert str(caught.value).startswith(f"{loaded.path}:{line}: sweep.method[1].layers: ")
        if not refused:  # as where the cells of the other network are finished
            preflight(Preflight(cells[:2], None, True, whole=cells), print)
        assert "whether layers are called hidden1" in listing(Options().selection(loaded), tmp_path / "none").text()


@pytest.mark.regression
@pytest.mark.parametrize(
    ("layer", "neuron", "key", "words"),
    [
        (
            "hiden1",
            0,
            "layer",
            "network fc has no such layer: 'hiden1'; there are: hidden1, hidden2, output (did you mean",
        ),
        ("output", 4, "neuron", "layer 'output' has neurons 0 to 3, not 4"),
        ("output", 3, None, ""),
    ],
)
def test_a_probe_of_no_neuron_is_refused_where_it_stands(
    tmp_path: Path, layer: str, neuron: int, key: str | None, words: str
) -> None:
    """Every cell ended with an error, and no check had told of it."""
    text = SUITE + f'\n[probe]\nlayer = "{layer}"\nneuron = {neuron}\n'
    loaded = load_suite(suite(tmp_path, text))
    cells = loaded.cells(device="cpu", threads=1)
    with pytest.raises(SuiteError) if key else nullcontext() as caught:
        preflight(Preflight(cells[:1], None, True, probe=loaded.probe), print)
    if caught is not None:
        line = next(n for n, line in enumerate(loaded.path.read_text().splitlines(), 1) if line.startswith(f"{key} ="))
        assert str(caught.value).startswith(f"{loaded.path}:{line}: probe.{key}: {words}")
    told = listing(Options().selection(loaded), tmp_path / "none").text()
    assert f"whether the probe's layer '{layer}' has a neuron {neuron}" in told
    with pytest.raises(SuiteError) if key else nullcontext():
        build(Options().selection(loaded), None)


@pytest.mark.regression
def test_a_network_beyond_all_bounds_is_named(tmp_path: Path) -> None:
    """It ended as a bug of bnpbench, with 70."""
    loaded = load_suite(suite(tmp_path, SUITE.replace("hidden = [9, 8]", "hidden = [9223372036854775807]")))
    cells = loaded.cells(device="cpu", threads=1, only=["method=bnp"])
    found = preflight(Preflight(cells, None, True), print)
    assert {cost.uncounted is not None for cost in found.values()} == {True}
    built = build(Options(only=("method=bnp",)).selection(loaded), None)
    assert built.exit_code == 3
    assert "not built: bnp, 2 cells: RuntimeError: " in built.text()
