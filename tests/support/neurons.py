"""Networks with one neuron of one layer to look at, and the loss as a function of its weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Tokens(nn.Module):
    """Dense layers over (N, T, n): several rows an example."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.output = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.mix(x).relu().sum(1))


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def convolutions() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding="same"),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, (3, 2), stride=(1, 2), padding=(1, 1), dilation=(1, 2), groups=2, padding_mode="circular"),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24, 3),
    )
    return model.eval()


# a network, the shape of its input, a layer and a neuron of it
CASES = {
    "first dense layer": (dense, (20, 4), "0", 3),
    "hidden dense layer": (dense, (20, 4), "2", 0),
    "output layer": (dense, (20, 4), "4", 2),
    "without bias": (
        lambda: nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 3)),
        (12, 4),
        "0",
        1,
    ),
    "rows of tokens": (Tokens, (6, 3, 4), "mix", 2),
    "same convolution": (convolutions, (7, 2, 6, 8), "0", 1),
    "grouped, strided, dilated, circular convolution": (convolutions, (7, 2, 6, 8), "3", 3),
    "dense layer behind convolutions": (convolutions, (40, 2, 6, 8), "7", 0),
    "1-d convolution": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(15, 3)),
        (6, 2, 5),
        "0",
        2,
    ),
    "3-d convolution without bias": (
        lambda: nn.Sequential(nn.Conv3d(1, 3, 2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(24, 4)),
        (6, 1, 3, 3, 3),
        "0",
        0,
    ),
}


def case_of(name: str) -> tuple[nn.Module, Tensor, str, int]:
    """A case in float64, whose features all vary."""
    make, shape, layer, neuron = CASES[name]
    torch.manual_seed(2)
    model = make().double()
    if layer != "0":  # keep the units in front alive
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.Linear | nn.Conv2d):
                    module.bias.add_(0.3)
    return model, torch.randn(shape, dtype=torch.float64), layer, neuron


def loss_of(model: nn.Module, x: Tensor, layer: str, neuron: int) -> tuple[object, Tensor]:
    """The mean cross-entropy as a function of [bias, weights] of one neuron, and their values."""
    module = model.get_submodule(layer)
    labels = torch.arange(len(x)) % 3
    state = {
        name: value.detach()
        for name, value in {**dict(model.named_parameters()), **dict(model.named_buffers())}.items()
    }
    prefix = f"{layer}."

    def loss(parameters: Tensor) -> Tensor:
        weight = module.weight.detach().clone()
        own = {**state}
        if module.bias is not None:
            bias = module.bias.detach().clone()
            own[f"{prefix}bias"] = torch.cat([bias[:neuron], parameters[:1], bias[neuron + 1 :]])
            parameters = parameters[1:]
        rows = [*weight[:neuron], parameters.reshape(weight[neuron].shape), *weight[neuron + 1 :]]
        own[f"{prefix}weight"] = torch.stack(rows)
        return F.cross_entropy(torch.func.functional_call(model, own, (x,)), labels)

    start = module.weight[neuron].detach().flatten()
    return loss, start if module.bias is None else torch.cat([module.bias[neuron : neuron + 1].detach(), start])
