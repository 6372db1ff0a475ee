"""Which layers of a model are taken, and why the others are not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrizations import weight_norm

from bnpbench.bnp import BNP


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.inner, self.decoder = nn.Embedding(6, 4), nn.Linear(4, 4), nn.Linear(4, 6)
        self.decoder.weight = self.embedding.weight


class OwnForward(nn.Linear):
    def forward(self, h: Tensor) -> Tensor:
        return nn.functional.linear(h, self.weight - self.weight.mean(), self.bias)


def test_takes_every_linear_and_convolution_and_says_why_not_the_others() -> None:
    tied = Tied()
    model = nn.ModuleDict(
        {
            "linear": nn.Linear(2, 2),
            "conv1": nn.Conv1d(2, 2, 1),
            "conv2": nn.Conv2d(4, 4, 3, groups=2, bias=False),
            "conv3": nn.Conv3d(2, 2, 3),
            "tied": tied,
            "again": tied.inner,  # one module under two names
            "transposed": nn.ConvTranspose2d(2, 2, 3),
            "norm": nn.BatchNorm2d(2),
            "normed": weight_norm(nn.Linear(2, 2)),
            "orthogonal": parametrizations.orthogonal(nn.Linear(2, 2)),
            "lazy": nn.LazyLinear(3),
            "own": OwnForward(2, 2),
            "complex": nn.Linear(2, 2, dtype=torch.complex64),
            "relu": nn.ReLU(),
            "lstm": nn.LSTM(2, 2),
        }
    )
    bnp = BNP(model)
    assert bnp.layers == ("linear", "conv1", "conv2", "conv3", "tied.inner")
    reasons = {
        "tied.embedding": "neither", "tied.decoder": "tied", "transposed": "transposed", "norm": "neither",
        "normed": "parametrized", "orthogonal": "parametrized", "lazy": "lazy", "own": "forward of its own",
        "complex": "complex64", "lstm": "neither",
    }  # fmt: skip
    found = {name: reason for name, reason in bnp.skipped.items() if "parametrizations" not in name}
    assert found.keys() == reasons.keys()
    for name, reason in reasons.items():
        assert reason in found[name], name


def test_a_lazy_layer_is_taken_once_it_has_weights() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with pytest.warns(UserWarning, match="tracks no layer.*lazy"):
        assert BNP(model).layers == ()
    model(torch.zeros(2, 5))
    assert BNP(model).layers == ("0",)


def test_distributed_tensors_are_left_alone(tmp_path: object) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        mesh = init_device_mesh("cpu", (1,))
        model[0].weight = nn.Parameter(distribute_tensor(model[0].weight.detach(), mesh))
        bnp = BNP(model)
        assert bnp.layers == ("2",)
        assert "sharded" in bnp.skipped["0"]
    finally:
        dist.destroy_process_group()
