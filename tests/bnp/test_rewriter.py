"""Preconditioners of sums over rows, against their explicit matrices."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from bnpbench import GradientPlugin
from bnpbench.bnp.rewriter import Rewriter
from bnpbench.errors import StatisticsError
from bnpbench.methods.bnp_full import BnpFull
from bnpbench.methods.eva_f import EvaF
from bnpbench.methods.foof import Foof
from bnpbench.methods.mac import Mac
from tests.support import ranks
from tests.support.matrices import Compared, images, network
from tests.support.pairs import Pairs, output_gradients

METHODS: dict[str, tuple[type[GradientPlugin], dict[str, Any]]] = {
    "foof": (Foof, {"damping": 0.1, "rho": 0.9, "every": 1}),
    "foof-every-2": (Foof, {"damping": 0.1, "rho": 0.9, "every": 2}),
    "foof-batch": (Foof, {"damping": 0.1, "rho": 0.0, "every": 1}),
    "mac": (Mac, {"damping": 0.5, "rho": 0.9, "every": 1}),
    "mac-every-2": (Mac, {"damping": 0.5, "rho": 0.9, "every": 2}),
    "mac-batch": (Mac, {"damping": 0.5, "rho": 0.0, "every": 1}),
    "eva-f": (EvaF, {"damping": 0.3, "rho": 0.9, "every": 1}),
    "eva-f-every-2": (EvaF, {"damping": 0.3, "rho": 0.9, "every": 2}),
    "eva-f-batch": (EvaF, {"damping": 0.3, "rho": 0.0, "every": 1}),
    "bnp-full": (BnpFull, {"rho": 0.9, "eps1": 1e-2, "eps2": 1e-4, "statistics": "running", "every": 1}),
    "bnp-full-every-2": (BnpFull, {"rho": 0.9, "eps1": 1e-2, "eps2": 1e-4, "statistics": "running", "every": 2}),
    "bnp-full-batch": (BnpFull, {"rho": 0.9, "eps1": 1e-2, "eps2": 1e-4, "statistics": "batch", "every": 1}),
}
ALL = pytest.mark.parametrize("name", METHODS)
RUNNING = pytest.mark.parametrize("name", ["foof-every-2", "mac", "eva-f", "bnp-full"])


def followed(model: nn.Module, name: str, **more: Any) -> tuple[Compared, Rewriter]:
    cls, options = METHODS[name]
    return Compared(model, str(cls.word()), options), Rewriter(model, cls.made(**options), **more)


@ALL
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("count", ["backward", "forward"])
def test_steps_are_products_with_the_matrix(name: str, bias: bool, count: str) -> None:
    model = network(bias)
    compared, rewriter = followed(model, name, count=count)
    for step in range(4):
        model.zero_grad()
        model(images(6, step)).square().mean().backward()
        compared.check(rewriter.precondition)


@ALL
@pytest.mark.parametrize("count", ["backward", "forward"])
def test_micro_batches_of_any_size_are_one_batch(name: str, count: str) -> None:
    model = network()
    compared, rewriter = followed(model, name, count=count)
    for step in range(3):
        model.zero_grad()
        for part, size in enumerate((4, 1, 3)):
            (model(images(size, 10 * step + part)).square().sum() / 8).backward()
        compared.check(rewriter.precondition)


@ALL
def test_a_single_row(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2, bias=False)).double()
    compared, rewriter = followed(model, name)
    for _ in range(3):
        model.zero_grad()
        model(torch.randn(1, 4, dtype=torch.float64)).square().mean().backward()
        compared.check(rewriter.precondition)


@RUNNING
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(4, 6, 3, groups=2, padding="same", padding_mode="reflect"), (5, 4, 7)),
        (nn.Conv3d(2, 3, 2, stride=(1, 2, 1)), (2, 2, 3, 4, 3)),
        (nn.Conv1d(2, 3, 2), (2, 6)),
        (nn.Conv2d(2, 4, 1, bias=False), (3, 2, 4, 5)),
        (nn.Linear(3, 2), (2, 4, 3)),
        (nn.Linear(3, 2, bias=False), (3,)),
    ],
    ids=["1d same", "3d", "without a batch", "1x1", "tokens", "one row"],
)
def test_shapes_of_calls(name: str, layer: nn.Module, shape: tuple[int, ...]) -> None:
    layer = copy.deepcopy(layer).double()
    if layer.__class__ is nn.Conv1d and layer.padding == "same":
        layer.padding = (1,)  # what it is here
    compared, rewriter = followed(layer, name)
    for _ in range(2):
        layer.zero_grad()
        layer(torch.randn(shape, dtype=torch.float64)).square().sum().backward()
        compared.check(rewriter.precondition)


@RUNNING
def test_channels_last_gradients(name: str) -> None:
    model = network().to(memory_format=torch.channels_last)
    compared, rewriter = followed(model, name)
    for step in range(2):
        model.zero_grad()
        model(images(3, step).to(memory_format=torch.channels_last)).square().mean().backward()
        assert not model[0].weight.grad.is_contiguous()
        compared.check(rewriter.precondition)


@RUNNING
def test_a_frozen_bias_is_none_and_a_frozen_weight_is_left_alone(name: str) -> None:
    model = network()
    model[0].bias.requires_grad_(False)
    model[5].weight.requires_grad_(False)
    model[5].bias.requires_grad_(False)
    compared, rewriter = followed(model, name)
    for step in range(3):
        model.zero_grad()
        model(images(3, step)).square().mean().backward()
        compared.check(rewriter.precondition)
    assert model[5].weight.grad is None
    assert rewriter.state_dict()["5.steps"] == 0


@RUNNING
def test_a_layer_that_comes_later_is_refreshed_in_its_first_step(name: str) -> None:
    model = network()
    model[7].weight.requires_grad_(False)
    compared, rewriter = followed(model, name)
    for step in range(4):
        if step == 1:
            model[7].weight.requires_grad_(True)
        model.zero_grad()
        model(images(3, step)).square().mean().backward()
        if step == 0:
            compared.inputs["7"].clear()
        compared.check(rewriter.precondition)


@RUNNING
@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_calls_count_once(name: str, reentrant: bool) -> None:
    model = network()
    compared, rewriter = followed(model, name)
    for step in range(2):
        model.zero_grad()
        hidden = checkpoint(model[:4], images(3, step).requires_grad_(True), use_reentrant=reentrant)
        model[4:](hidden).square().mean().backward()
        for place in ("0", "2"):
            del compared.inputs[place][1:]
        compared.check(rewriter.precondition)


@RUNNING
@pytest.mark.parametrize("to_none", [True, False])
def test_rows_of_dropped_gradients_do_not_count(name: str, to_none: bool) -> None:
    model = network()
    compared, rewriter = followed(model, name)
    for step in range(3):
        model.zero_grad(set_to_none=to_none)
        model(images(4, 50 + step)).square().mean().backward()
        model.zero_grad(set_to_none=to_none)
        for calls in compared.inputs.values():
            calls.clear()
        model(images(3, step)).square().mean().backward()
        with torch.no_grad():
            model(images(2, 70 + step))
        for calls in compared.inputs.values():
            del calls[1:]
        compared.check(rewriter.precondition)


@RUNNING
def test_statistics_follow_a_cast_and_the_gradients_keep_their_precision(name: str) -> None:
    model, exact = network().bfloat16(), network()
    rewriter = followed(model, name)[1]
    state = rewriter.state_dict()
    assert {value.dtype for key, value in state.items() if not key.endswith("steps")} == {torch.float32}
    model(images(3, 0).bfloat16()).float().square().mean().backward()
    rewriter.precondition()
    assert model[0].weight.grad.dtype == torch.bfloat16
    model.double()
    model.zero_grad()
    model(images(3, 1)).square().mean().backward()
    rewriter.precondition()
    assert {v.dtype for k, v in rewriter.state_dict().items() if not k.endswith("steps")} == {torch.float64}
    assert exact[0].weight.dtype == torch.float64


@RUNNING
def test_autocast_does_not_touch_the_statistics(name: str) -> None:
    torch.manual_seed(0)
    plain, cast = (nn.Linear(4, 3) for _ in range(2))
    cast.load_state_dict(plain.state_dict())
    found = []
    for layer, enabled in ((plain, False), (cast, True)):
        rewriter = followed(layer, name)[1]
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            layer(torch.randn(6, 4)).float().square().mean().backward()
            rewriter.precondition()
        found.append({key: value for key, value in rewriter.state_dict().items() if "steps" not in key})
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, rtol=0, atol=0)


@RUNNING
def test_resumed_is_undisturbed(name: str) -> None:
    """Between two refreshes, too."""
    model = network()
    rewriter = followed(model, name)[1]

    def step(model: nn.Module, rewriter: Rewriter, number: int) -> None:
        model.zero_grad()
        model(images(3, number)).square().mean().backward()
        rewriter.precondition()

    for number in range(3):
        step(model, rewriter, number)
    twin = network()
    resumed = followed(twin, name)[1]
    resumed.load_state_dict(rewriter.state_dict())
    for number in range(3, 6):
        for one in ((model, rewriter), (twin, resumed)):
            step(*one, number)
        for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
            assert mine.grad is not None
            assert other.grad is not None
            assert mine.grad.equal(other.grad)
    with pytest.raises(ValueError, match="state of another model"):
        resumed.load_state_dict({})


def test_which_steps_have_a_refresh() -> None:
    model = network()
    rewriter = Rewriter(model, Foof.made(every=3))
    seen = []
    for number in range(7):
        seen.append(rewriter.refreshes())
        assert [rewriter.refreshes(ahead) for ahead in range(3)] == [(number + ahead) % 3 == 0 for ahead in range(3)]
        model.zero_grad()
        model(images(3, number)).square().mean().backward()
        before = rewriter.state_dict()["0.inverse"]
        rewriter.precondition()
        assert before.equal(rewriter.state_dict()["0.inverse"]) != seen[-1]
    assert seen == [True, False, False, True, False, False, True]
    assert rewriter.turns == (True, False)
    assert Rewriter(network(), Foof.made(every=1)).turns == (True,)


@pytest.mark.parametrize("name", METHODS)
def test_a_nan_is_seen_in_the_gradient(name: str) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 3)
    rewriter = followed(layer, name)[1]
    rows = torch.randn(5, 4)
    rows[2, 1] = float("nan")
    layer(rows).sum().backward()
    layer.weight.grad.nan_to_num_()
    rewriter.precondition()
    assert not layer.weight.grad.isfinite().all()


def test_a_matrix_that_cannot_be_inverted_gives_no_number() -> None:
    layer = nn.Linear(4, 3, bias=False)
    rewriter = Rewriter(layer, Foof.made(damping=0.0))
    layer(torch.zeros(2, 4)).sum().backward()
    rewriter.precondition()
    assert layer.weight.grad.isnan().all()


# --- compiled modules -----------------------------------------------------------------------------


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@RUNNING
@pytest.mark.usefixtures("_fresh_compiler")
def test_a_compiled_model_takes_the_same_steps(name: str) -> None:
    """Also with micro-batches and one row."""
    model, twin = network(), network()
    rewriter = followed(model, name)[1]
    compared = Compared(twin, str(METHODS[name][0].word()), METHODS[name][1])
    eager = Rewriter(twin, METHODS[name][0].made(**METHODS[name][1]))
    fast = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    for step, count in enumerate((4, 4, 1)):
        model.zero_grad()
        twin.zero_grad()
        for part in range(1 + step % 2):
            fast(images(count, 10 * step + part)).square().mean().backward()
            twin(images(count, 10 * step + part)).square().mean().backward()
        rewriter.precondition()
        compared.check(eager.precondition)
        for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-9, atol=1e-9)


# --- ranks -------------------------------------------------------------------------------------------


RANKS = 2


def of_two_ranks(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    timeout = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=timeout)
    try:
        for name in METHODS:
            model = network()
            compared, rewriter = followed(model, name)
            parallel = DistributedDataParallel(model)
            for step in range(3):
                count = 1 if step == 2 else 3
                model.zero_grad()
                if step == 1:
                    with parallel.no_sync():
                        parallel(images(2, 100 + rank)).square().mean().backward()
                parallel(images(count, 10 * step + rank)).square().mean().backward()
                for calls in compared.inputs.values():
                    calls.clear()
                rows = [images(count, 10 * step + other) for other in range(RANKS)]
                with torch.no_grad():
                    for batch in rows + ([images(2, 100 + other) for other in range(RANKS)] if step == 1 else []):
                        model(batch)
                compared.check(rewriter.precondition)
            rewriter.remove()
        model = network()
        rewriter = Rewriter(model, Pairs())
        parallel = DistributedDataParallel(model)
        parallel(images(3, rank)).square().mean().backward()
        rewriter.precondition()
        rows = torch.cat([images(3, other) for other in range(RANKS)])
        for name, expected in output_gradients(network(), [rows], [lambda h: h.square().mean()]).items():
            torch.testing.assert_close(rewriter.state_dict()[f"{name}.outputs"], expected, rtol=1e-9, atol=1e-12)
    finally:
        dist.destroy_process_group()


def test_two_ranks_are_one_batch(tmp_path: Path) -> None:
    ranks.together(of_two_ranks, RANKS, str(tmp_path / "store"))


class Named(GradientPlugin):
    """Carries a tensor of some name; the gradient stays."""

    kind: str = "named"
    name: str

    def start(self, layer: Any) -> dict[str, Tensor]:
        return {self.name: torch.zeros(layer.groups, layer.columns)}


@pytest.mark.parametrize("name", ["steps", "draws", "2.inputs"])
def test_names_that_are_taken_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"named: start\(\) names a tensor '{name}'.*take another name"):
        Rewriter(network(), Named(name=name))
    Rewriter(network(), Named(name="step"))


class Transposed(GradientPlugin):
    """Gives a view of the gradient."""

    kind: str = "transposed"

    def input_sums(self, layer: Any, state: Any, rows: Tensor) -> Tensor:
        return rows.sum(1)

    def fold(self, layer: Any, state: Any, sums: Any) -> None:
        return

    def rewrite(self, layer: Any, state: Any, gradient: Tensor) -> Tensor:
        return gradient.mT


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.Linear(3, 3, bias=False), (4, 3)), (nn.Conv2d(4, 4, 1, groups=2, bias=False), (4, 4, 2, 2))],
    ids=["linear", "convolution"],
)
def test_another_view_of_the_gradient_takes_its_place(layer: nn.Module, shape: tuple[int, ...]) -> None:
    rewriter = Rewriter(layer, Transposed())
    generator = torch.Generator().manual_seed(0)
    layer(torch.randn(shape, generator=generator)).square().sum().backward()
    groups = getattr(layer, "groups", 1)
    before = layer.weight.grad.clone().reshape(groups, -1, layer.weight[0].numel())
    rewriter.precondition()
    torch.testing.assert_close(layer.weight.grad.reshape(before.shape), before.mT, rtol=0, atol=0)


@RUNNING
def test_a_bias_that_is_trained_later_is_refused(name: str) -> None:
    model = network()
    model[0].bias.requires_grad_(False)
    _, rewriter = followed(model, name)
    for trained in (False, True):
        model[0].bias.requires_grad_(trained)
        model.zero_grad()
        model(images(3, 0)).square().mean().backward()
        if not trained:
            rewriter.precondition()
    before, grads = rewriter.state_dict(), [p.grad.clone() for p in model.parameters()]
    with pytest.raises(StatisticsError, match=r"the bias of layer '0' is trained now, .*: remove\(\) it, and make"):
        rewriter.precondition()
    assert all(value.equal(before[key]) for key, value in rewriter.state_dict().items())
    assert all(p.grad.equal(grad) for p, grad in zip(model.parameters(), grads, strict=True))


def test_inside_of_a_turn_steps_are_of_one_kind_and_not_counted() -> None:
    model = network()
    rewriter = Rewriter(model, Foof.made(every=3))
    for refresh in (True, False):
        with rewriter.turn(refresh):
            model(images(3, 0)).square().mean().backward()
            rewriter.precondition()
            rewriter.advance()
            assert rewriter.refreshes() is refresh
    assert rewriter.state_dict()["0.steps"] == 0
    assert rewriter.refreshes()
