"""No engine changes a result: each against the eager one, from the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor import cpp_builder
from torch._inductor.utils import fresh_cache
from torch.fx.experimental.proxy_tensor import make_fx

from bnpbench.training import engines
from bnpbench.training.trainer import Trainer
from tests.support.engines import ADAM, METHODS, SGD, disagreement
from tests.support.recorder import Recorder
from tests.support.training import trainer, weights

WARMED = {"kind": "steps", "epochs": (1,), "warmup": {"kind": "linear", "start": 0.01, "iterations": 7}}


def recorded(work: Callable[[], Any]) -> engines.Recorded:
    work()
    recorder = Recorder()
    with recorder:
        work()
    return engines.Recorded(recorder.replay)


def graphed(**changes: Any) -> Trainer:
    """A trainer whose step is recorded and replayed, as a CUDA graph is."""
    ours = trainer(**changes)
    sample = next(iter(ours.examples.training(torch.arange(10), 10, 0)))
    before = ours.state.snapshot()
    ours.engine = engines.captured(engines.eager(ours.step, sample), sample, recorded)
    ours.state.restore(before)
    return ours


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=lambda o: o["kind"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_recorded_step_equals_the_eager_one_to_the_bit(method: Any, optimizer: dict[str, Any]) -> None:
    changes = {"method": method, "optimizer": optimizer, "schedule": WARMED}
    eager, replayed = trainer(**changes), graphed(**changes)
    for _ in range(2):
        rows = [t.epoch() for t in (eager, replayed)]
        timeless = [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]
        assert timeless[0] == timeless[1]
    assert torch.equal(weights(eager), weights(replayed))
    for ours, theirs in zip(replayed.model.buffers(), eager.model.buffers(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("method", ["vanilla", "bn", "bnp"])
def test_micro_batches_and_clipping_are_recorded_too(method: str) -> None:
    changes = {"method": method, "accumulate": 2, "clip_norm": 0.1, "clip_adaptive": 0.01, "label_smoothing": 0.1}
    changes |= {"schedule": "cosine", "optimizer": {"kind": "adamw", "lr": 0.01}, "weight_decay": 0.1}
    eager, replayed = trainer(**changes), graphed(**changes)
    assert [t.epoch()["train_loss"] for t in (eager, eager)] == [t.epoch()["train_loss"] for t in (replayed, replayed)]
    assert torch.equal(weights(eager), weights(replayed))


def fails(*_: Any) -> None:
    raise RuntimeError("no compiler here")


def test_what_does_not_compile_is_recorded_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "compiled", fails)
    monkeypatch.setattr(engines, "cuda_graph", recorded)
    ours = trainer(engine="graphed")
    ours.prepare()
    assert ours.engine.active == "graphed(eager)"


# Each compiles for many seconds; tests/benchmarks/engines_agree.py goes through all of them.
COMPILED = [
    ("fc", "bnp", SGD),
    ("fc", "bn", ADAM),
    ("wide", "bnp", ADAM),
    ("cnn", "bnp", SGD),
    ("resnet", "bnp+gn", SGD),
    ("resnet", "frn", SGD),
    ("vit", "bnp+ln", ADAM),
    ("gpt", "bnp", SGD),
]


@pytest.mark.parametrize(("network", "method", "optimizer"), COMPILED, ids=str)
def test_a_compiled_step_equals_the_eager_one(network: str, method: Any, optimizer: dict[str, Any]) -> None:
    assert disagreement(network, method, optimizer, torch.float64) <= 1e-12


# Of ten steps the first, fourth, seventh and tenth have a refresh, which is a graph of its own.
@pytest.mark.parametrize(
    ("network", "kind"), [("fc", "foof"), ("cnn", "bnp-full"), ("fc", "mac"), ("cnn", "eva-f")], ids=str
)
def test_a_compiled_step_with_or_without_a_refresh_equals_the_eager_one(network: str, kind: str) -> None:
    assert disagreement(network, {"kind": kind, "every": 3}, SGD, torch.float64) <= 1e-10


@pytest.mark.timeout(900)  # two graphs, with Cholesky's factors, on a machine that may be busy
@pytest.mark.parametrize(
    "method", [{"kind": "kfac", "fisher": "sampled", "every": 3}, {"kind": "eva", "every": 3}], ids=str
)
def test_so_does_one_with_gradients_at_the_outputs(method: dict[str, Any]) -> None:
    """The labels that it draws are the same, too."""
    assert disagreement("fc", {"damping": 1.0, **method}, SGD | {"lr": 0.02}, torch.float64) <= 1e-10


@pytest.mark.parametrize("kind", ["foof", "mac", "eva-f", "bnp-full", "kfac", "eva"])
def test_both_kinds_of_steps_are_recorded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "compiled", fails)
    monkeypatch.setattr(engines, "cuda_graph", recorded)
    options = {"kind": kind, "every": 3, **({"damping": 1.0} if kind in ("eva-f", "eva") else {})}
    ours, theirs = (trainer(method=options, engine=engine) for engine in ("graphed", "eager"))
    start = weights(ours)
    for one in (ours, theirs):
        one.prepare()
    assert torch.equal(weights(ours), start)
    for _ in range(2):
        mine, other = ours.epoch(), theirs.epoch()
        assert mine["train_loss"] == other["train_loss"]
        assert mine["refresh_seconds_median"] is not None
    assert torch.equal(weights(ours), weights(theirs))
    kept = ours.state.snapshot()["preconditioner"]
    assert {int(value) for key, value in kept.items() if key.endswith("steps")} == {20}


def test_a_compiled_step_with_all_options_of_training_equals_the_eager_one() -> None:
    changes = {"accumulate": 2, "clip_norm": 0.1, "clip_adaptive": 0.01, "label_smoothing": 0.1}
    changes |= {"weight_decay": 0.1, "schedule": "cosine"}
    optimizer = {"kind": "adamw", "lr": 0.01, "eps": 1e-3}
    assert disagreement("fc", "bnp", optimizer, torch.float64, **changes) <= 1e-12


def test_muon_is_compiled_and_recorded() -> None:
    """Its products are in bfloat16, whatever the weights are in."""
    optimizer = {"kind": "muon"}
    assert disagreement("cnn", "bnp", optimizer, torch.float32) <= 5e-3
    eager, replayed = trainer(optimizer=optimizer), graphed(optimizer=optimizer)
    assert [t.epoch()["train_loss"] for t in (eager, eager)] == [t.epoch()["train_loss"] for t in (replayed, replayed)]
    assert torch.equal(weights(eager), weights(replayed))


def test_the_schedule_reaches_both_optimizers_of_a_compiled_step() -> None:
    ours = trainer(optimizer={"kind": "muon", "adamw_lr": 0.05}, schedule=WARMED, engine="compiled")
    ours.prepare()
    rates = []
    for _ in range(2):
        ours.epoch()
        rates.append([float(group["lr"]) for group in ours.step.optimizer.param_groups])
    assert [rate for pair in rates for rate in pair] == pytest.approx([0.02, 0.05, 0.002, 0.005])


def test_a_compiled_step_equals_the_eager_one_in_float32() -> None:
    assert disagreement("fc", "bnp", SGD, torch.float32) <= 1e-5


@pytest.mark.parametrize(
    ("kinds", "active"),
    [(("compiled", "compiled"), "compiled"), (("compiled", "eager"), "compiled, eager")],
    ids=str,
)
def test_both_programs_say_what_they_are(kinds: tuple[str, str], active: str) -> None:
    ours = trainer(method={"kind": "foof", "every": 3})
    left = iter(kinds)
    found = engines.in_turns(lambda step, sample: engines.Preparation(step, next(left)), ours.step, ())
    assert found.active == active


def test_what_a_traced_graph_holds_become_its_first_arguments() -> None:
    weight, images = torch.nn.Parameter(torch.ones(2)), torch.arange(6.0).view(3, 2)

    def step(index: torch.Tensor) -> None:
        with torch.no_grad():
            weight.sub_(images.index_select(0, index).sum(0))

    index = torch.tensor([0, 2])
    graph, held = engines._lifted(make_fx(step)(index))  # the compiler is given what this makes
    assert [any(tensor is one for one in (weight, images)) for tensor in held] == [True, True]
    assert not any(node.op == "get_attr" for node in graph.graph.nodes)
    with torch.no_grad():
        weight.fill_(1.0)
        graph(*held, index)
    assert weight.tolist() == [1.0 - 4.0, 1.0 - 6.0]


@pytest.mark.parametrize(("method", "graphs"), [("bnp", 1), ({"kind": "foof", "every": 3}, 2)], ids=str)
def test_the_same_step_of_another_seed_is_found_in_the_cache(method: Any, graphs: int) -> None:
    """And is that seed's: the graph holds no weight, statistic or learning rate of the one that it was made for."""
    with fresh_cache():
        for seed, found in ((1, (graphs, 0)), (2, (0, graphs))):
            optimizer = {"kind": "sgd", "lr": 0.02 * seed, "momentum": 0.9}
            changes = {"method": method, "seed": seed, "optimizer": optimizer}
            ours, eager = trainer(engine="compiled", **changes), trainer(**changes)
            ours.prepare()
            assert (ours.engine.cache_misses, ours.engine.cache_hits) == found
            assert ours.epoch()["train_loss"] == pytest.approx(eager.epoch()["train_loss"], rel=1e-4)


def test_what_the_compiler_does_not_keep_was_compiled() -> None:
    with fresh_cache(), torch.compiler.config.patch(force_disable_caches=True):
        prepared = [trainer(engine="compiled") for _ in range(2)]
        for one in prepared:
            one.prepare()
    assert [(one.engine.cache_misses, one.engine.cache_hits) for one in prepared] == [(1, 0), (1, 0)]


def test_kernels_are_compiled_apart_from_what_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a header that g++ reads ready, which is faster, and both optimized as they were together."""
    build, commands = cpp_builder.run_compile_cmd, list[str]()

    def building(command: str, cwd: str) -> None:
        commands.append(command)
        build(command, cwd)

    monkeypatch.setattr(cpp_builder, "run_compile_cmd", building)
    with fresh_cache():
        trainer(engine="compiled").prepare()
    for part in ("main", "optimized"):
        (command,) = [command for command in commands if f".{part}.cpp " in command]
        assert {"-O3", "-c", "-include"} <= set(command.split())
