"""A plugin file with a method that works, one that does not, a network and a data set; and a suite of them."""

from __future__ import annotations

from pathlib import Path

PLUGIN = '''
from typing import Literal

from bnpbench import DatasetPlugin, DataShape, MethodPlugin, NetworkPlugin


class RmsNorm(MethodPlugin):
    kind: Literal["rms"]
    eps: float = 1e-6

    def layer(self, features, spatial_dims, site):
        from torch import nn

        return nn.RMSNorm(features, eps=self.eps)


class Faulty(MethodPlugin):
    kind: Literal["faulty"]
    how: str = "raise"

    def layer(self, features, spatial_dims, site):
        import os
        from torch import nn

        if self.how == "build":
            return nn.RMSNrm(features)

        class Layer(nn.Module):
            def forward(this, x):
                if not x.is_meta:
                    if self.how == "exit":
                        os._exit(7)
                    if self.how == "put":
                        return x.clone().put_(x.new_zeros(1).long(), x.new_zeros(1))
                    raise ArithmeticError("no such number")
                return x

        return Layer()


class Linear(NetworkPlugin):
    kind: Literal["linear"]

    def build(self, normalization, input_shape, classes):
        from torch import nn

        return nn.Sequential(normalization.make(input_shape[0], 0, "input"), nn.Linear(input_shape[0], classes))


class Signs(DatasetPlugin):
    """The sign of a sum."""

    kind: Literal["signs"]

    def describe(self):
        return DataShape((6,), 2, 300, 100)

    def load(self):
        import torch

        x = torch.randn(400, 6, generator=torch.Generator().manual_seed(0))
        y = (x.sum(1) > 0).long()
        return x[:300], y[:300], x[300:], y[300:]
'''


SUITE = """
name = "own"
plugins = ["mine.py"]
[train]
dataset = "signs"
network = "linear"
optimizer = { kind = "sgd", lr = 0.5 }
batch_size = 10
epochs = 3
threads = 1
[sweep]
method = ["vanilla", "rms", { kind = "rms", eps = 0.1 }, "bnp"]
"""


def write(folder: Path, suite: str = SUITE, plugin: str = PLUGIN) -> Path:
    (folder / "mine.py").write_text(plugin)
    path = folder / "own.toml"
    path.write_text(suite)
    return path
