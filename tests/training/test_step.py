"""Precision and memory format: what they change, and what they leave alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bnpbench.errors import NotApplicable
from bnpbench.training.augmentation import crop_flip, draw_crop_flips
from bnpbench.training.step import in_order, set_precision
from bnpbench.training.trainer import Trainer
from tests.support.training import cell, trainer, weights

IMAGES = {"kind": "synthetic", "shape": (3, 18, 18), "train": 24, "test": 8, "classes": 3}
NETWORKS = [{"kind": "cnn", "channels": (4, 8, 4), "dense": 8}, {"kind": "resnet", "depth": 8}]
METHODS = ["vanilla", "bn", "bnp", "bnp+gn"]
ALL_METHODS = [*METHODS, "bn-pre", {"kind": "bn", "inference": "averaged"}, "renorm", "ln", "4things"]


def on_images(**changes: Any) -> Trainer:
    return trainer(dataset=IMAGES, batch_size=8, **changes)


def one_step(ours: Trainer) -> Trainer:
    ours.step(torch.arange(8))
    return ours


@pytest.mark.parametrize("augment", ["none", "crop-flip"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n["kind"])
def test_one_step_in_channels_last_equals_the_contiguous_one(network: Any, method: str, augment: str) -> None:
    contiguous, last = (
        on_images(network=network, method=method, augment=augment, memory_format=memory_format)
        for memory_format in ("contiguous", "channels_last")
    )
    for ours in (contiguous, last):
        ours.step.begin_epoch(ours.noise)
        one_step(ours)
    torch.testing.assert_close(by_name(last), by_name(contiguous), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(last.step.loss_sum, contiguous.step.loss_sum, rtol=1e-5, atol=0.0)
    if last.bnp and contiguous.bnp:
        torch.testing.assert_close(last.bnp.state_dict(), contiguous.bnp.state_dict(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n["kind"])
def test_images_reach_the_network_as_they_are_stored(network: Any) -> None:
    """So that no convolution has to bring its input into another order first."""
    ours = on_images(network=network, method="bnp+gn", augment="crop-flip", memory_format="channels_last")
    seen: list[Tensor] = []
    for module in ours.model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
            assert module.weight.is_contiguous(memory_format=torch.channels_last)
    one_step(ours)
    assert len(seen) >= 3
    assert all(images.is_contiguous(memory_format=torch.channels_last) for images in seen)


def by_name(ours: Trainer) -> dict[str, Tensor]:
    return {name: value.detach().contiguous() for name, value in ours.model.state_dict().items()}


def test_a_gather_keeps_the_memory_format() -> None:
    images, index = torch.randn(5, 3, 4, 6), torch.tensor([4, 0, 4])
    last = images.contiguous(memory_format=torch.channels_last)
    assert in_order(images, index).is_contiguous()
    assert in_order(last, index).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(in_order(last, index), images[index])
    draws = draw_crop_flips(5, torch.Generator().manual_seed(1), torch.device("cpu"))
    assert crop_flip(last, draws).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(crop_flip(last, draws), crop_flip(images, draws))


@pytest.mark.parametrize("network", [{"kind": "fc", "hidden": (16, 16)}, *NETWORKS], ids=lambda n: n["kind"])
@pytest.mark.parametrize("method", ALL_METHODS, ids=str)
def test_bf16_rounds_products_and_keeps_everything_else_in_float32(method: Any, network: Any) -> None:
    full, half = (one_step(on_images(network=network, method=method, precision=p)) for p in ("float32", "bf16"))
    for ours in (full, half):
        kept = [*ours.model.parameters(), *ours.model.buffers(), *(ours.bnp.state_dict().values() if ours.bnp else ())]
        assert {value.dtype for value in kept if value.is_floating_point()} == {torch.float32}
        assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in ours.model.parameters())
    assert not torch.equal(weights(full), weights(half))
    torch.testing.assert_close(half.step.loss_sum, full.step.loss_sum, rtol=5e-2, atol=0.0)
    change, expected = (weights(one) - weights(on_images(network=network, method=method)) for one in (half, full))
    assert torch.linalg.vector_norm(change - expected) < 0.3 * torch.linalg.vector_norm(expected)


AT_ONCE = [
    {"kind": "bn", "momentum": 1.0},
    {"kind": "bn", "inference": "averaged"},
    {"kind": "renorm", "momentum": 1.0},
    {"kind": "4things", "momentum": 1.0},
    {"kind": "bnp", "rho": 0.0},
]


@pytest.mark.parametrize("method", AT_ONCE, ids=str)
def test_statistics_are_no_rounded_ones_under_bf16(method: Any) -> None:
    """Of methods whose running values are those of the last batch."""
    ours = one_step(on_images(network=NETWORKS[0], method=method, precision="bf16"))
    values = ours.bnp.state_dict() if ours.bnp else dict(ours.model.named_buffers())
    means = torch.cat([value for name, value in values.items() if name.endswith("running_mean")])
    means = means[means != 0]  # of channels that are not dead
    assert (means != means.bfloat16().float()).float().mean() > 0.8


def test_the_loss_of_bf16_logits_is_no_rounded_one() -> None:
    ours = on_images(network=NETWORKS[0], precision="bf16")
    losses = [ours.step.forward(*ours.step.gather(torch.arange(n, n + 8)))[1] for n in range(8)]
    assert all(loss.dtype == torch.float32 for loss in losses)
    assert any(loss != loss.bfloat16().float() for loss in losses)


def test_evaluation_is_in_the_precision_of_the_training() -> None:
    full, half = (on_images(network=NETWORKS[0], precision=p) for p in ("float32", "bf16"))
    rows = [ours.epoch() for ours in (full, half)]
    assert rows[0]["test_loss"] != rows[1]["test_loss"]
    assert rows[1]["test_loss"] == pytest.approx(rows[0]["test_loss"], rel=0.05)


@pytest.mark.parametrize("name", ["float32", "tf32", "bf16"])
def test_only_tf32_lets_cuda_round_float32(name: str) -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        set_precision(cell(precision=name).settings)
        allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        assert allowed == (name == "tf32", name == "tf32")
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize("network", [{"kind": "fc", "hidden": (16, 16)}, NETWORKS[1]], ids=lambda n: n["kind"])
@pytest.mark.parametrize("method", ["vanilla", "bn", "bnp", "4things"])
@pytest.mark.parametrize("optimizer", [{"kind": "sgd", "lr": 0.1, "momentum": 0.9}, {"kind": "adam", "lr": 0.01}])
def test_fp16_takes_the_step_of_float32(optimizer: dict[str, Any], method: str, network: Any) -> None:
    """Its gradients are those of a loss that was scaled, and unscaled before BNP and the optimizer see them."""
    changes = {"network": network, "method": method, "optimizer": optimizer}
    full, half = (on_images(precision=p, **changes) for p in ("float32", "fp16"))
    assert half.scaler is not None
    half.scaler.load_state_dict({**half.scaler.state_dict(), "scale": 2.0**8})  # the first one it tries overflows
    for ours in (full, half):
        one_step(ours)
    kept = [*half.model.parameters(), *half.model.buffers(), *(half.bnp.state_dict().values() if half.bnp else ())]
    assert {value.dtype for value in kept if value.is_floating_point()} == {torch.float32}
    torch.testing.assert_close(half.step.loss_sum, full.step.loss_sum, rtol=5e-3, atol=0.0)
    gradients = [
        torch.cat([p.grad.flatten() for p in t.model.parameters() if p.grad is not None]) for t in (half, full)
    ]
    assert torch.linalg.vector_norm(gradients[0] - gradients[1]) < 0.1 * torch.linalg.vector_norm(gradients[1])


def test_an_overflowed_step_is_left_out_and_the_scale_is_halved() -> None:
    ours = on_images(network=NETWORKS[0], method="bnp", precision="fp16")
    assert ours.scaler is not None
    ours.prepare()
    buffers = [state["momentum_buffer"] for state in ours.state.optimizer.state.values()]
    assert buffers
    assert not any(buffer.any() for buffer in buffers)  # torch left them as they came out of memory
    ours.scaler.load_state_dict({**ours.scaler.state_dict(), "scale": 2.0**60})
    before = weights(ours)
    one_step(ours)
    assert torch.equal(weights(ours), before)
    assert ours.scaler.get_scale() == 2.0**59
    ours.scaler.load_state_dict({**ours.scaler.state_dict(), "scale": 2.0**10})
    one_step(ours)
    assert not torch.equal(weights(ours), before)
    assert torch.isfinite(weights(ours)).all()


def test_a_snapshot_holds_the_scale() -> None:
    ours = on_images(network=NETWORKS[0], precision="fp16")
    one_step(ours)
    taken = ours.state.snapshot()
    assert ours.scaler is not None
    ours.scaler.load_state_dict({**ours.scaler.state_dict(), "scale": 2.0**60, "_growth_tracker": 7})
    one_step(ours)
    ours.state.restore(taken)
    assert ours.state.snapshot()["scaler"] == taken["scaler"]
    assert taken["scaler"]["_growth_tracker"] == 1


def test_fp16_is_not_compiled() -> None:
    ours = on_images(network=NETWORKS[0], precision="fp16", engine="compiled")
    with pytest.raises(NotApplicable, match="fp16"):
        ours.prepare()
