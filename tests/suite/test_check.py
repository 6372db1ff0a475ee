"""What the options tell of a method on a network is what building them finds."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bnpbench import load_suite, read_results
from bnpbench.display import Lines
from bnpbench.errors import NotApplicable, SuiteError
from bnpbench.execution.progress import Reporter
from bnpbench.sites import Normalization, Site
from bnpbench.suite import Settings, Suite, misfit, shipped_suites
from bnpbench.training import models
from tests.support.command import called
from tests.support.suite_texts import DOUBTS, SWEEP

NETWORKS: dict[str, Any] = {
    "fc": {"kind": "fc", "hidden": (8, 1, 6)},
    "shallow": {"kind": "fc", "hidden": ()},
    "one": {"kind": "fc", "hidden": (1,)},
    "cnn": {"kind": "cnn", "channels": (4, 6, 8), "dense": 5},
    "resnet": {"kind": "resnet", "depth": 14},
    "preactivation": {"kind": "resnet", "depth": 14, "preactivation": True},
    "resnet18": {"kind": "resnet18"},
}
METHODS: list[Any] = [
    "vanilla",
    "bn",
    {"kind": "bn", "input": True},
    "bn-pre",
    "renorm",
    {"kind": "renorm", "input": True},
    "ln",
    {"kind": "ln", "position": "pre"},
    "gn",
    {"kind": "gn", "groups": 3},
    {"kind": "gn", "groups": 1, "position": "pre"},
    {"kind": "gn", "channels_per_group": 1},
    "4things",
    {"kind": "4things", "ghost_batch": 1},
    {"kind": "4things", "ghost_batch": 2, "group": 2},
    {"kind": "4things", "ghost_batch": None, "group": 3, "input": True},
    "bnp",
    {"kind": "bnp", "first_layer": False},
    "bnp+gn",
    {"kind": "bnp+gn", "groups": 2},
]
SHAPES = [(1, 18, 18), (3, 19, 34)]


def settings(network: str, method: Any, shape: tuple[int, ...], **others: Any) -> Settings:
    return Settings.model_validate(
        {
            "dataset": {"kind": "synthetic", "shape": shape, "train": 20, "test": 5, "classes": 3},
            "network": NETWORKS[network],
            "method": method,
            "optimizer": {"kind": "sgd", "lr": 0.1},
            "batch_size": 4,
            "epochs": 1,
            **others,
        }
    )


def building(asked: Settings, shape: tuple[int, ...]) -> nn.Module | str:
    """The model, or why there is none."""
    try:
        with torch.device("meta"):
            return models.build_model(asked, asked.network.reads(shape), 3, torch.Generator("cpu")).train()
    except NotApplicable as error:
        return str(error)


def built(asked: Settings, shape: tuple[int, ...], model: nn.Module | str | None = None) -> str | None:
    """What building says against it."""
    model = building(asked, shape) if model is None else model
    if isinstance(model, str):
        return model
    shares = asked.batch_size // asked.devices
    examples = shares if not getattr(asked.method, "sync", True) else asked.batch_size
    return models.not_applicable(model, asked.network.reads(shape), examples)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("network", NETWORKS)
def test_options_tell_what_building_finds(network: str, shape: tuple[int, ...]) -> None:
    reasons = set()
    for method in METHODS:
        model = building(settings(network, method, shape), shape)
        for batch_size in (1, 4):
            asked = settings(network, method, shape, batch_size=batch_size)
            told, found = misfit(asked), built(asked, shape, model)
            assert (told is None) == (found is None), (method, batch_size, told, found)
            if told is not None and found is not None:
                reasons.add(found.partition(":")[0])
                assert told.option is None or told.reason == found
                assert told.reason.partition(":")[0] == found.partition(":")[0]
    assert reasons


def test_each_device_with_its_own_statistics_has_fewer_rows() -> None:
    for sync, reason in ((True, False), (False, True)):
        asked = settings("fc", {"kind": "bn", "sync": sync}, (5,), batch_size=3, devices=2)
        assert (misfit(asked) is not None) == reason
        assert (built(asked, (5,)) is not None) == reason


def test_a_single_row_names_the_setting_that_divides_the_batch() -> None:
    """At batch size 60 it said "1 row ... at batch size 1" alone."""
    asked = settings("fc", "bn", (5,), batch_size=60, accumulate=60)
    found = misfit(asked)
    model = building(asked, (5,))
    assert found is not None
    assert not isinstance(model, str)
    for reason in (found.reason, models.not_applicable(model, (5,), asked.pooled_examples, asked.divided)):
        assert reason is not None
        assert "(accumulate = 60 divides a batch of 60) sees 1 row" in reason
    of_features = misfit(settings("fc", {"kind": "gn", "groups": 5}, (5,), batch_size=60, accumulate=60))
    assert of_features is None or "accumulate" not in of_features.reason


@pytest.mark.parametrize("position", ["post", "pre"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_says_where_it_asks_for_a_normalization(network: str, shape: tuple[int, ...], position: Any) -> None:
    asked, options = list[Site](), settings(network, "vanilla", shape).network

    class Noted(nn.Module):
        def __init__(self, features: int, site: str) -> None:
            super().__init__()
            self.features, self.site = features, site

        def forward(self, x: Tensor) -> Tensor:
            assert x.shape[1] == self.features
            asked.append(Site(self.site, self.features, prod(x.shape[2:])))
            return x

    with torch.device("meta"):
        normalization = Normalization(position, lambda features, dims, site: Noted(features, site))
        options.built(normalization, shape, 3)(torch.empty(2, *options.reads(shape)))
    said = list(options.sites(options.reads(shape), position))
    assert sorted(map(repr, asked)) == sorted(map(repr, said))


# --- in a suite ------------------------------------------------------------------------------

SUITE = """
name = "fits"
[train]
dataset = { kind = "synthetic", shape = [8], classes = 3, train = 60, test = 30 }
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 20
epochs = 1
threads = 1
[sweep]
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(sweep: str) -> Path:
        path = tmp_path / "fits.toml"
        path.write_text(SUITE + sweep)
        return path

    return write


@pytest.mark.parametrize(
    ("method", "key", "words"),
    [
        ('{ kind = "gn", groups = 3 }', "sweep.method[1].groups", "3 groups do not divide its 8 channels"),
        ('{ kind = "gn", channels_per_group = 16 }', "method[1].channels_per_group", "16 channels a group do not"),
        ('{ kind = "bnp+gn", groups = 16 }', "sweep.method[1].groups", "16 groups do not divide"),
        ('{ kind = "4things", group = 3 }', "sweep.method[1].group", "3 channels a group do not divide"),
    ],
)
def test_what_fits_no_network_is_refused_where_it_stands(
    write: Callable[[str], Path], method: str, key: str, words: str
) -> None:
    path = write(f'network = [{{ kind = "fc", hidden = [8] }}]\nmethod = [\n"vanilla",\n{method}]\n')
    with pytest.raises(SuiteError, match=words) as error:
        load_suite(path)
    assert error.value.line == 11
    assert str(error.value.key).endswith(key)
    assert "behind layer 'hidden1'" in str(error.value)


def test_normalizations_are_kept_in_networks_of_others_alone(write: Callable[[str], Path]) -> None:
    path = write('network = [{ kind = "fc", hidden = [8] }]\nmethod = ["foof", { kind = "foof", sites = "keep" }]\n')
    with pytest.raises(SuiteError, match="none of its own: 'foof' keeps none") as error:
        load_suite(path)
    assert (error.value.line, str(error.value.key)) == (11, "sweep.method[1].sites")


def test_check_says_what_run_says_of_a_method_that_fits_no_network(write: Callable[[str], Path]) -> None:
    path = write('network = [{ kind = "fc", hidden = [8] }]\nmethod = ["vanilla", { kind = "gn", groups = 3 }]\n')
    check, run = (called(*command, path, cwd=path.parent) for command in (("check",), ("run", "--quiet")))
    assert (check.returncode, run.returncode) == (2, 2)
    assert check.stderr == run.stderr
    assert f"{path}:11: sweep.method[1].groups: group normalization behind layer 'hidden1'" in check.stderr


def test_one_network_that_a_method_does_not_fit_stops_no_other(write: Callable[[str], Path], tmp_path: Path) -> None:
    path = write(
        'network = [{ kind = "fc", hidden = [8] }, { kind = "fc", hidden = [6] }, { kind = "fc", hidden = [1] }, '
        '{ kind = "fc", hidden = [] }]\nmethod = ["vanilla", "gn", "ln", "bnp"]\n[measure]\ninterleave = ["method"]\n'
    )
    checked, built, run = (called(*words, path, cwd=tmp_path) for words in (("check",), ("check", "--build"), ("run",)))
    assert (checked.returncode, built.returncode, run.returncode) == (0, 0, 0), run.stderr
    told = [line for line in checked.stdout.splitlines() if line.startswith("not applicable: ")]
    assert sorted(line.partition(", ")[0] for line in told) == ["not applicable: gn"] * 3 + ["not applicable: ln"] * 2
    found = built.stdout.partition("built: 16 of 16 cells\n")[2].splitlines()
    assert len(found) == 5
    cells = read_results(tmp_path / "results").cells
    assert cells.groupby("label").status.apply(lambda column: sorted(set(column))).to_dict() == {
        "vanilla": ["ok"],
        "gn": ["not-applicable", "ok"],
        "ln": ["not-applicable", "ok"],
        "bnp": ["ok"],
    }
    reasons = set(cells[cells.status == "not-applicable"].message)
    assert len(reasons) == 5
    assert all(any(reason in line for line in found) for reason in reasons)


def test_cells_of_a_block_that_fail_for_one_reason_are_told_once(
    write: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = load_suite(
        write(
            'network = [{ kind = "fc", hidden = [8] }]\nmethod = ["vanilla", "bn", "bnp"]\n'
            '[measure]\ninterleave = ["method"]\n'
        )
    )
    (block,) = loaded.blocks(loaded.cells(device="cpu", threads=1))
    progress = Reporter(Lines(), "one")
    progress.start([block])
    failed = {"status": "error", "message": "DataError: half a file", "seed": 1}
    keys = [cell.key for cell in block.cells]
    progress.finished(block, {keys[0]: failed, keys[1]: {**failed, "message": "other"}, keys[2]: failed})
    dated = [line[len("2026-01-02 03:04:05 ") :] for line in capsys.readouterr().err.splitlines()]
    told = [line for line in dated if line.startswith("warning: ")]
    assert told == [
        "warning: vanilla N=20, bnp N=20: error: DataError: half a file",
        "warning: bn N=20: error: other",
    ]


def doubts(suite: Suite) -> list[str]:
    return suite.warnings(suite.cells(device="cpu", threads=1))


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ('{ kind = "constant", warmup = { kind = "linear", start = 0.01, epochs = 100 } }', "warm-up of 100 epochs"),
        ('{ kind = "constant", warmup = { kind = "linear", start = 0.01, epochs = 2 } }', "warm-up of 2 epochs"),
        ('{ kind = "constant", warmup = { kind = "linear", start = 0.01, epochs = 1 } }', None),
        ('{ kind = "constant", warmup = { kind = "constant", start = 0.01, iterations = 6 } }', "of 6 iterations"),
        ('{ kind = "constant", warmup = { kind = "constant", start = 0.01, iterations = 5 } }', None),
        ('{ kind = "steps", epochs = [1, 2] }', "after epoch 2 comes after the last, 2"),
        ('{ kind = "steps", epochs = [1] }', None),
    ],
)
def test_a_schedule_that_the_training_does_not_reach(
    load: Callable[[str], Suite], schedule: str, words: str | None
) -> None:
    found = doubts(load(f"{DOUBTS}schedule = {schedule}\n{SWEEP}"))
    assert len(found) == (words is not None)
    assert words is None or (words in found[0] and found[0].startswith("vanilla, bnp: "))


@pytest.mark.parametrize("name", shipped_suites())
def test_the_shipped_suites_mean_what_they_ask_for(name: str) -> None:
    assert doubts(load_suite(name)) == []


def test_more_threads_than_cores(load: Callable[[str], Suite]) -> None:
    (told,) = doubts(load(DOUBTS.replace("threads = 1", "threads = 9999") + SWEEP))
    assert told.startswith("vanilla, bnp: 9,999 threads are more than the ")
    assert doubts(load(DOUBTS + SWEEP)) == []


def test_an_optimizer_that_cannot_be_traced_has_no_meaning_in_a_compiled_engine() -> None:
    soap = {"kind": "soap", "lr": 0.1}
    for engine, reason in (("compiled", True), ("graphed", True), ("eager", False), ("auto", False)):
        found = misfit(settings("fc", "bnp", (5,), batch_size=10, optimizer=soap, engine=engine))
        assert (found is not None) == reason
        assert found is None or (found.option is None and "runs eagerly alone" in found.reason)
