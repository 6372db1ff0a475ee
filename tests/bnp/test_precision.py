"""Float32 accuracy, low precision, numbers that are not finite, and steps that read nothing back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from bnpbench.bnp import BNP
from tests.support.oracle import Watched, assert_close

MEAN, SD = 1000.0, 0.1


def far_from_zero(*shape: int) -> Tensor:
    return MEAN + SD * torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def whole(model: nn.Module, rows: Tensor) -> None:
    model(rows).sum().backward()


def micro(model: nn.Module, rows: Tensor) -> None:
    for part in rows.split(3):
        model(part).sum().backward()


def micro_and_touched(model: nn.Module, rows: Tensor) -> None:
    """Written to between the micro-batches, so that only the device knows what is in the pool."""
    for part in rows.split(3):
        model(part).sum().backward()
        model.weight.grad.mul_(0.5)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("backward", [whole, micro, micro_and_touched])
@pytest.mark.parametrize("kind", ["linear", "rows", "conv", "channels last"])
def test_variance_far_from_zero_in_float32(
    kind: str, backward: Callable[[nn.Module, Tensor], None], warm: bool
) -> None:
    """Mean 1000, standard deviation 0.1: the variance within 1 %, whatever the running mean."""
    if kind in ("linear", "rows"):
        model, rows = nn.Linear(5, 2), far_from_zero(*((30, 5) if kind == "linear" else (30, 4, 5)))
        channels = rows.reshape(-1, 5)
    else:
        model, rows = nn.Conv2d(5, 2, 3), far_from_zero(30, 5, 6, 6)
        channels = rows.movedim(1, -1).reshape(-1, 5)
        if kind == "channels last":
            rows = rows.contiguous(memory_format=torch.channels_last)
    bnp = BNP(model, rho=0.0)
    if warm:
        whole(model, rows)
        bnp.precondition()
        model.zero_grad()
    backward(model, rows)
    bnp.precondition()
    expected = channels.double().var(0, correction=0)
    assert_close(bnp.state_dict()["running_var"] / expected, torch.ones(5), 0.01)
    assert_close(bnp.state_dict()["running_mean"], channels.double().mean(0), 5e-6 * MEAN)


def test_variance_over_very_many_rows_in_float32() -> None:
    """A plain float32 sum of so many rows is off by more than their spread."""
    rows = far_from_zero(512, 2, 32, 32).contiguous(memory_format=torch.channels_last)
    model = nn.Conv2d(2, 1, 1)
    bnp = BNP(model, rho=0.0)
    whole(model, rows)
    bnp.precondition()
    expected = rows.double().var((0, 2, 3), correction=0)
    assert_close(bnp.state_dict()["running_var"] / expected, torch.ones(2), 0.01)


@pytest.mark.parametrize("shape", [(10**6, 1, 1), (300_000, 1, 1, 2), (60_000, 1, 1), (1, 1, 10**6)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_variance_of_very_many_examples_of_a_convolution(shape: tuple[int, ...], channels_last: bool) -> None:
    """The kernel adds up a column in its own width, whether the columns are channels or places of them."""
    rows = far_from_zero(*shape)
    if channels_last:
        rows = rows.movedim(1, -1).contiguous().movedim(-1, 1)
    model = (nn.Conv1d if len(shape) == 3 else nn.Conv2d)(1, 1, 1)
    bnp = BNP(model, rho=0.0)
    whole(model, rows)
    bnp.precondition()
    assert_close(bnp.state_dict()["running_var"] / rows.double().var(correction=0), torch.ones(1), 0.01)
    assert_close(bnp.state_dict()["running_mean"], rows.double().mean().reshape(1), 5e-6 * MEAN)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5), nn.Tanh(), nn.Linear(5, 2))


def images(count: int = 6) -> Tensor:
    return 2 + torch.randn(count, 1, 6, 6, generator=torch.Generator().manual_seed(1))


def test_float32_agrees_with_float64() -> None:
    model = network()
    watched, bnp = Watched(model), BNP(model)
    for _ in range(3):
        model.zero_grad()
        model(images()).square().mean().backward()
        watched.check(bnp, tolerance=1e-5)
    assert all(value.dtype == torch.float32 for value in bnp.state_dict().values())


@pytest.mark.parametrize("rows", [1, 6])
def test_bf16_autocast_keeps_float32_statistics(rows: int) -> None:
    """The layers see bf16, and may be stepped inside the autocast region too."""
    model = network()
    model[5] = nn.Linear(5, 2, bias=False)
    watched, bnp = Watched(model), BNP(model)
    for step in range(3):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            output = model(images(rows))
            assert output.dtype == torch.bfloat16
            output.float().square().mean().backward()
            if step == 1:
                watched.check(bnp, tolerance=1e-5)
                continue
        watched.check(bnp, tolerance=1e-5)
    assert watched.inputs["3"] == []
    assert all(value.dtype == torch.float32 for value in bnp.state_dict().values())


def test_bf16_parameters() -> None:
    model = network().bfloat16()
    watched, bnp = Watched(model), BNP(model)
    model(images().bfloat16()).float().square().mean().backward()
    watched.check(bnp, tolerance=1e-2)
    assert all(value.dtype == torch.float32 for value in bnp.state_dict().values())
    assert model[0].weight.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("attached", [True, False])
def test_grad_scaler(attached: bool) -> None:
    """Unscaled before preconditioning; a step that the scaler skips leaves no trace in the statistics."""
    model, plain = network(), network()
    plain.load_state_dict(model.state_dict())
    bnps = BNP(model), BNP(plain)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, plain)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    if attached:
        bnps[0].attach(optimizers[0])
    for step in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        plain(images()).square().mean().backward()
        scaler.scale(model(images()).square().mean()).backward()
        if step == 1:
            model[0].weight.grad[0, 0, 0, 0] = float("inf")
            before = bnps[0].state_dict(), bnps[1].state_dict()
            weights = [p.detach().clone() for p in model.parameters()]
            scaler.unscale_(optimizers[0])
            if attached:
                scaler.step(optimizers[0])
                assert all(value.equal(before[0][key]) for key, value in bnps[0].state_dict().items())
                assert all(p.equal(w) for p, w in zip(model.parameters(), weights, strict=True))
            scaler.update()
            continue
        if not attached:
            scaler.unscale_(optimizers[0])
            bnps[0].precondition()
        scaler.step(optimizers[0])
        scaler.update()
        bnps[1].precondition()
        optimizers[1].step()
        for a, b in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("touched", [False, True])
def test_an_input_that_is_not_finite_shows(value: float, count: int, touched: bool) -> None:
    """In the gradient, hence in the next loss, and in the running values for good."""
    model = nn.Linear(4, 2)
    bnp = BNP(model)
    rows = torch.randn(count, 4)
    rows[0, 1] = value
    model(rows).nan_to_num().sum().backward()
    if touched:
        model.weight.grad.mul_(0.5)
    bnp.precondition()
    assert not model.weight.grad[:, 1].isfinite().any()
    assert not model.bias.grad.isfinite().any()
    for _ in range(2):
        state = bnp.state_dict()
        assert not state["running_mean"][1].isfinite()
        assert not state["running_var"][1].isfinite()
        model.zero_grad()
        model(torch.randn(count, 4)).sum().backward()
        bnp.precondition()
        assert not model.bias.grad.isfinite().any()


class NoHostReads(TorchDispatchMode):
    """Refuses what a CUDA graph could not capture, and notes how much a step allocates at once."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func._overloadpacket not in (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero), func
        assert func._overloadpacket is not torch.ops.aten.equal, func
        result = func(*args, **(kwargs or {}))
        known = {t.untyped_storage().data_ptr() for t in torch.utils._pytree.tree_leaves(args) if torch.is_tensor(t)}
        for tensor in torch.utils._pytree.tree_leaves(result):
            if torch.is_tensor(tensor) and tensor.untyped_storage().data_ptr() not in known:
                self.largest = max(self.largest, tensor.numel())
        return result


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("statistics", ["running", "batch"])
@pytest.mark.parametrize("count", [1, 6])
def test_a_step_reads_nothing_back_and_allocates_no_gradient(device: str, statistics: str, count: int) -> None:
    model = network().to(device)
    model[3] = nn.Linear(48, 5, bias=False, device=device)
    bnp = BNP(model, statistics=statistics)
    rows = images(count).to(device)
    for micro_batches, touched in ((1, False), (2, False), (2, True)):
        model.zero_grad(set_to_none=micro_batches == 1)
        with NoHostReads():
            for _ in range(micro_batches):
                model(rows).square().mean().backward()
            if touched:
                model[3].weight.grad.mul_(0.5)
            mode = NoHostReads()
            with mode:
                bnp.precondition()
        channels = 1 + 48 + 5
        assert mode.largest <= (3 * 3 + 4 * channels if micro_batches > 1 else 2 * channels), (
            "that is more than vectors"
        )
