"""Preconditioners as explicit matrices in float64, from their papers: what the tests compare with.

Nothing here is taken from the package. A convolution's rows are listed patch by patch; each method is a symmetric
matrix M for each group, by which [G_b | G_w] is multiplied from the right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.curvature import KINDS, patches
from tests.support.oracle import assert_close, rows_of, scale_of


@dataclass
class Matrices:
    """What a method carries of one layer, and its steps.

    Attributes:
        layer: with or without a bias.
        kind: of the method.
        options: of the method, all of them.
    """

    layer: nn.Module
    kind: str
    options: dict[str, Any]
    steps: int = 0
    carried: list[dict[str, Tensor]] = field(default_factory=list)  # of each group

    @property
    def biased(self) -> bool:
        return self.layer.bias is not None and self.layer.bias.requires_grad

    def step(self, inputs: list[Tensor], weight_grad: Tensor, bias_grad: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Take the rows of all ``inputs`` and return the preconditioned gradients."""
        groups = getattr(self.layer, "groups", 1)
        listed = [patches(self.layer, h) for h in inputs]
        examples = sum(len(h) if self._batched(h) else 1 for h in inputs)
        if isinstance(self.layer, nn.Linear):
            examples = sum(len(rows[0]) for rows in listed)
        while len(self.carried) < groups:
            self.carried.append({})
        weights, biases = [], []
        for group in range(groups):
            rows = torch.cat([call[group] for call in listed])
            if self.biased:
                rows = torch.cat([torch.ones(len(rows), 1, dtype=torch.float64), rows], 1)
            gradient = weight_grad.double().chunk(groups)[group].flatten(1)
            if self.biased:
                gradient = torch.cat([bias_grad.double().chunk(groups)[group][:, None], gradient], 1)
            matrix = getattr(self, self.kind.replace("-", "_"))(group, rows, examples, inputs)
            new = gradient @ matrix
            if self.biased:
                biases.append(new[:, 0])
                new = new[:, 1:]
            weights.append(new.reshape(weight_grad.chunk(groups)[group].shape))
        self.steps += 1
        return torch.cat(weights), torch.cat(biases) if self.biased else bias_grad

    @property
    def refreshes(self) -> bool:
        return self.steps % self.options["every"] == 0

    def foof(self, group: int, rows: Tensor, examples: int, _: list[Tensor]) -> Tensor:
        carried, rho = self.carried[group], self.options["rho"]
        moment = sum(torch.outer(row, row) for row in rows) / examples
        carried.setdefault("values", []).append(moment)
        values = carried["values"]
        shares = [(1 - rho) * rho ** (len(values) - 1 - place) for place in range(len(values))]
        mean = sum(share * value for share, value in zip(shares, values, strict=True)) / sum(shares)
        if self.refreshes:
            carried["matrix"] = torch.linalg.inv(
                mean + self.options["damping"] * torch.eye(len(mean), dtype=mean.dtype)
            )
        return carried["matrix"]

    def mac(self, group: int, rows: Tensor, _examples: int, _: list[Tensor]) -> Tensor:
        carried, rho, damping = self.carried[group], self.options["rho"], self.options["damping"]
        carried.setdefault("values", []).append(rows.mean(0))
        values = carried["values"]
        shares = [(1 - rho) * rho ** (len(values) - 1 - place) for place in range(len(values))]
        mean = sum(share * value for share, value in zip(shares, values, strict=True)) / sum(shares)
        if self.refreshes:
            eye = torch.eye(len(mean), dtype=mean.dtype)
            carried["matrix"] = damping * torch.linalg.inv(torch.outer(mean, mean) + damping * eye)
        return carried["matrix"]

    def eva_f(self, group: int, rows: Tensor, _examples: int, _: list[Tensor]) -> Tensor:
        carried, rho = self.carried[group], self.options["rho"]
        value = rows.mean(0)
        carried["mean"] = value if "mean" not in carried else rho * carried["mean"] + (1 - rho) * value
        if self.refreshes:
            mean = carried["mean"]
            eye = torch.eye(len(mean), dtype=mean.dtype)
            carried["matrix"] = torch.linalg.inv(torch.outer(mean, mean) + self.options["damping"] * eye)
        return carried["matrix"]

    def bnp_full(self, group: int, _rows: Tensor, _examples: int, inputs: list[Tensor]) -> Tensor:
        carried, options = self.carried[group], self.options
        groups = getattr(self.layer, "groups", 1)
        rows = torch.cat([rows_of(self.layer, h.detach().double()) for h in inputs]).chunk(groups, 1)[group]
        n = rows.shape[1]
        mean = carried.get("mean", torch.zeros(n, dtype=rows.dtype))
        covariance = carried.get("covariance", torch.eye(n, dtype=rows.dtype))
        of_batch = rows.mean(0)
        center = of_batch if len(rows) > 1 else mean
        covariance_of_batch = sum(torch.outer(row - center, row - center) for row in rows) / len(rows)
        rho = options["rho"]
        carried["mean"] = mean = rho * mean + (1 - rho) * of_batch
        carried["covariance"] = covariance = rho * covariance + (1 - rho) * covariance_of_batch
        if options["statistics"] == "batch":
            mean, covariance = of_batch, covariance_of_batch
        if self.refreshes:
            largest = covariance.diagonal().max()
            damping = options["eps1"] * largest + options["eps2"]
            carried["damped"] = covariance + damping * torch.eye(n, dtype=rows.dtype)
        taps = self.layer.weight[0, 0].numel()
        damped = torch.kron(carried["damped"], torch.eye(taps, dtype=rows.dtype))
        mu = mean.repeat_interleave(taps)
        if not self.biased:
            return torch.linalg.inv(damped + torch.outer(mu, mu)) / scale_of(self.layer, inputs)
        shift = torch.eye(len(mu) + 1, dtype=rows.dtype)
        shift[0, 1:] = -mu
        return shift @ torch.block_diag(torch.eye(1), torch.linalg.inv(damped)) @ shift.T / scale_of(self.layer, inputs)

    def _batched(self, h: Tensor) -> bool:
        return isinstance(self.layer, nn.Linear) or h.dim() == len(self.layer.kernel_size) + 2


class Compared:
    """A model with the matrices of each Linear and Conv, and a record of what goes into each layer."""

    def __init__(self, model: nn.Module, kind: str, options: dict[str, Any]) -> None:
        self.layers = {name: module for name, module in model.named_modules() if isinstance(module, KINDS)}
        self.matrices = {name: Matrices(module, kind, options) for name, module in self.layers.items()}
        self.inputs: dict[str, list[Tensor]] = {name: [] for name in self.layers}
        for name, module in self.layers.items():
            module.register_forward_pre_hook(
                lambda _, args, name=name: self.inputs[name].append(args[0].detach().clone())
            )

    def check(self, precondition: Callable[[], None], tolerance: float = 1e-9) -> None:
        """Precondition, and compare gradients; forget the recorded calls."""
        expected = {
            name: self.matrices[name].step(
                self.inputs[name], layer.weight.grad.clone(), None if layer.bias is None else layer.bias.grad
            )
            for name, layer in self.layers.items()
            if layer.weight.grad is not None and self.inputs[name]
        }
        expected = {name: (w.clone(), None if b is None else b.clone()) for name, (w, b) in expected.items()}
        precondition()
        for name, (weight, bias) in expected.items():
            layer = self.layers[name]
            size = max(part.abs().max().item() for part in (weight, bias) if part is not None)
            assert math.isfinite(size)
            assert size > 0
            assert_close(layer.weight.grad, weight, tolerance * size)
            if bias is not None:
                assert_close(layer.bias.grad, bias, tolerance * size)
        for calls in self.inputs.values():
            calls.clear()


def network(bias: bool = True) -> nn.Sequential:
    """Convolutions with stride, dilation, padding of two kinds and groups, and dense layers."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, (3, 2), stride=2, padding=(1, 0), bias=bias), nn.ReLU(inplace=True),
        nn.Conv2d(4, 6, 2, groups=2, dilation=(1, 2), padding=1, padding_mode="circular", bias=bias), nn.Tanh(),
        nn.Flatten(), nn.Linear(72, 5, bias=bias), nn.ReLU(inplace=True), nn.Linear(5, 3, bias=bias),
    ).double()  # fmt: skip


def images(count: int, seed: int) -> Tensor:
    return 1 + torch.randn(count, 2, 6, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
