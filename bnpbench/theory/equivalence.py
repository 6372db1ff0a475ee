"""Proposition 7: a step of BN without gradient through its statistics is a step of BNP on the merged network."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnpbench.bnp import BNP
from bnpbench.theory.outcome import Equality, Finding, Setup, both, statement

EPSILON = 1e-3  # of the BN layers
RATE = 0.01

Layer = nn.Linear | nn.Conv2d
Statistics = list[tuple[Tensor, Tensor]]


def merge(weight: Tensor, bias: Tensor, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """W diag(1/sigma) and b - W diag(1/sigma) mu, of a dense layer or of a convolution by channels."""
    shape = (1, -1, *[1] * (weight.dim() - 2))
    merged = weight / deviation.view(shape)
    return merged, bias - (merged * mean.view(shape)).flatten(1).sum(1)


def bn_forward(layers: list[Layer], x: Tensor, *, through: bool = False) -> tuple[Tensor, Statistics]:
    """The post-activation BN network with B_{0,1} in front of every layer but the first.

    Args:
        layers: Linear or Conv2d, ReLU between them.
        x: a batch.
        through: whether gradients pass through the statistics.

    Returns:
        Outputs (flattened behind the examples), and mean and sqrt(variance + epsilon) in front of each layer but one.
    """
    statistics: Statistics = []
    for number, layer in enumerate(layers):
        if number:
            x = x.relu()
            others = [dim for dim in range(x.dim()) if dim != 1]
            variance, mean = torch.var_mean(x, others, correction=0)
            deviation = (variance + EPSILON).sqrt()
            if not through:
                mean, deviation = mean.detach(), deviation.detach()
            statistics.append((mean.detach(), deviation.detach()))
            shape = (1, -1, *[1] * (x.dim() - 2))
            x = (x - mean.view(shape)) / deviation.view(shape)
        x = layer(x)
    return x.flatten(1), statistics


def merged_network(layers: list[Layer], statistics: Statistics) -> nn.Sequential:
    """The vanilla network that computes the same at these statistics: layers "0", "2", "4", ReLU between them."""
    modules: list[nn.Module] = []
    for number, layer in enumerate(layers):
        twin = deepcopy(layer)
        if number:
            modules.append(nn.ReLU())
            with torch.no_grad():
                weight, bias = merge(layer.weight, layer.bias, *statistics[number - 1])  # type: ignore[arg-type]
                twin.weight.copy_(weight)
                twin.bias.copy_(bias)  # type: ignore[union-attr]
        modules.append(twin)
    return nn.Sequential(*modules, nn.Flatten())


def bnp_step(network: nn.Sequential, bnp: BNP, x: Tensor, labels: Tensor) -> None:
    """One step of BNP through the public interface."""
    network.zero_grad()
    F.cross_entropy(network(x), labels).backward()
    bnp.precondition()
    _descend(list(network.parameters()))


def make_bnp(network: nn.Sequential, **options: float | bool) -> BNP:
    """With the hypotheses: batch statistics, q = 1, damping epsilon; the first layer has no BN in front of it."""
    hypotheses: dict[str, object] = {"statistics": "batch", "scale": False, "eps1": 0.0, "eps2": EPSILON}
    return BNP(network, layers=lambda name, module: name != "0", **(hypotheses | options))  # type: ignore[arg-type]


@statement("proposition-7", "one step of BN, statistics held fixed, is one step of BNP on the merged network")
def proposition_7(setup: Setup) -> Finding:
    """Outputs before the step and merged parameters after it, of dense and valid convolutional networks."""
    outputs, updates = Equality(1e-9), Equality(1e-9)
    for layers, x, labels, where in _networks(setup):
        before, network = _one_step(layers, x, labels)
        outputs.add(*before, where)
        updates.add(*_updates(layers, network), where)
    return Finding(
        tried=f"{updates.count} networks: dense, and convolutions without padding",
        worst=max((outputs, updates), key=lambda equality: equality.tightest).worst,
        tightest=max(outputs.tightest, updates.tightest),
        verdict=both(outputs.verdict, updates.verdict),
        outside=(*_other_settings(setup), _zero_padding(), _drift(setup)),
    )


Taken = tuple[nn.Sequential, list[Tensor], list[tuple[Tensor, Tensor]]]


def _one_step(
    layers: list[Layer], x: Tensor, labels: Tensor, *, through: bool = False, **options: float | bool
) -> tuple[tuple[Tensor, Tensor], Taken]:
    """Outputs of both networks, then both networks after a step: BNP's, where it was, BN's merged as before."""
    output, statistics = bn_forward(layers, x, through=through)
    network = merged_network(layers, statistics)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    vanilla = network(x).detach()
    gradients = torch.autograd.grad(
        F.cross_entropy(output, labels), [p for layer in layers for p in layer.parameters()]
    )
    bnp = make_bnp(network, **options)
    bnp_step(network, bnp, x, labels)
    bnp.remove()
    after = []
    for number, (weight, bias) in enumerate(zip(gradients[::2], gradients[1::2], strict=True)):
        layer = layers[number]
        moved = (layer.weight.detach() - RATE * weight, layer.bias.detach() - RATE * bias)  # type: ignore[union-attr]
        after.append(merge(*moved, *statistics[number - 1]) if number else moved)
    return (output.detach(), vanilla), (network, before, after)


def _updates(_: list[Layer], taken: Taken) -> tuple[Tensor, Tensor]:
    """The change of all parameters by BNP and by BN, as vectors."""
    network, before, after = taken
    bnp = torch.cat([(p.detach() - start).flatten() for p, start in zip(network.parameters(), before, strict=True)])
    flat = [tensor for pair in after for tensor in pair]
    return bnp, torch.cat([(p - start).flatten() for p, start in zip(flat, before, strict=True)])


def _networks(setup: Setup) -> Iterator[tuple[list[Layer], Tensor, Tensor, str]]:
    generator = setup.generator("proposition-7")
    for trial in range(max(2, setup.trials // 3)):
        batch, n = (int(torch.randint(3, 20, (), generator=generator)) for _ in range(2))
        if trial % 2:
            shape: tuple[int, ...] = (2, 6, 7)
            layers: list[Layer] = [nn.Conv2d(2, n, 3), nn.Conv2d(n, 4, (3, 2)), nn.Conv2d(4, 3, (2, 4))]
            where = f"N={batch}, convolutions of {n} and 4 channels"
        else:
            shape, layers = (n,), [nn.Linear(n, 7), nn.Linear(7, 5), nn.Linear(5, 3)]
            where = f"N={batch}, dense {n}-7-5-3"
        x = 2 * torch.randn(batch, *shape, generator=generator, dtype=torch.float64) + 1
        yield _drawn(layers, generator), x, torch.randint(3, (batch,), generator=generator), where
    if setup.data is not None:
        x, labels = setup.data.images[:60].flatten(1), setup.data.labels[:60]
        dense: list[Layer] = [
            nn.Linear(x.shape[1], 50),
            nn.Linear(50, 50),
            nn.Linear(50, int(setup.data.labels.max()) + 1),
        ]
        yield _drawn(dense, generator), x, labels, f"{setup.data.name}, N=60, dense"


def _drawn(layers: list[Layer], generator: torch.Generator) -> list[Layer]:
    """In float64, with random weights of variance 2/n and biases."""
    for layer in layers:
        layer.double()
        with torch.no_grad():
            weight = torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64)
            layer.weight.copy_(weight * (2 / weight[0].numel()) ** 0.5)
            layer.bias.copy_(torch.randn(len(weight), generator=generator, dtype=torch.float64))  # type: ignore[union-attr]
    return layers


def _example(setup: Setup) -> tuple[list[Layer], Tensor, Tensor]:
    generator = setup.generator("edges")
    layers = _drawn([nn.Linear(6, 20), nn.Linear(20, 20), nn.Linear(20, 4)], generator)
    x = torch.randn(60, 6, generator=generator, dtype=torch.float64) + 1
    return layers, x, torch.randint(4, (60,), generator=generator)


def _other_settings(setup: Setup) -> Iterator[str]:
    """One hypothesis dropped at a time: how far the updates are apart."""
    layers, x, labels = _example(setup)
    for name, through, options in (
        ("gradients pass through the statistics (BN as it is trained)", True, {}),
        ("BNP's default damping eps1 = 1e-2, eps2 = 1e-4", False, {"eps1": 1e-2, "eps2": 1e-4}),
    ):
        bnp, bn = _updates(layers, _one_step(layers, x, labels, through=through, **options)[1])
        cosine = F.cosine_similarity(bnp, bn, 0)
        yield f"{name}: the updates differ by {(bnp - bn).norm() / bnp.norm():.2f}, cosine {cosine:.3f}"


def _zero_padding() -> str:
    """The smallest case: two examples of a map of one pixel, a 1 x 3 kernel that reaches over its border."""
    first = nn.Conv2d(1, 1, 1).double()
    second = nn.Conv2d(1, 1, (1, 3), padding=(0, 1)).double()
    with torch.no_grad():
        for layer in (first, second):
            layer.weight.fill_(1.0)
            layer.bias.fill_(0.0)  # type: ignore[union-attr]
    x = torch.tensor([1.0, 3.0], dtype=torch.float64).view(2, 1, 1, 1)
    output, statistics = bn_forward([first, second], x)
    vanilla = merged_network([first, second], statistics)(x)
    return (
        "convolution with zero padding: already the outputs differ, because BN pads with its mean: N = 2, one pixel "
        f"h = 1 and 3, kernel (1, 1, 1): {', '.join(f'{v:.3f}' for v in output.flatten().tolist())} against "
        f"{', '.join(f'{v:.3f}' for v in vanilla.detach().flatten().tolist())}"
    )


def _drift(setup: Setup) -> str:
    """BN and BNP from the same start on the same batches: outputs on one batch, after some steps."""
    generator = setup.generator("drift")
    layers, x, _ = _example(setup)
    teacher = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    network = merged_network(layers, bn_forward(layers, x)[1])
    bnp, found = make_bnp(network), []
    for step in range(1, 51):
        batch = torch.randn(60, 6, generator=generator, dtype=torch.float64) + 1 if step > 1 else x
        labels = (batch @ teacher).argmax(1)
        parameters = [parameter for layer in layers for parameter in layer.parameters()]
        for parameter in parameters:
            parameter.grad = None
        F.cross_entropy(bn_forward(layers, batch)[0], labels).backward()
        _descend(parameters)
        bnp_step(network, bnp, batch, labels)
        if step in (1, 2, 5, 10, 50):
            bn, vanilla = bn_forward(layers, x)[0].detach(), network(x).detach()
            found.append(f"{(bn - vanilla).norm() / bn.norm():.1e} after {step}")
    return (
        "BN's network changes with its statistics, BNP's does not: outputs on the first batch differ by "
        f"{', '.join(found)} steps"
    )


@torch.no_grad()
def _descend(parameters: list[nn.Parameter]) -> None:
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.sub_(RATE * parameter.grad)
