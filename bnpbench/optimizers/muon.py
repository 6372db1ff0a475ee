"""Muon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bnpbench.errors import NotApplicable
from bnpbench.fields import Fraction, Positive, PositiveFloat
from bnpbench.optimizers.adamw import AdamW
from bnpbench.optimizers.base import OptimizerPlugin

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class Muon(OptimizerPlugin):
    """torch.optim.Muon (Jordan et al. 2024) on the matrices of hidden layers, AdamW on the rest.

    Muon serves the weights of dense layers and attentions, and the kernels of convolutions as matrices of (out, in
    times taps); where a weight is standardized, what it is computed from. ``in_proj_weight`` of an attention, its three
    projections one above the other, is orthogonalized as the one matrix of (3 d, d) that it is. Embeddings,
    normalizations, biases and, as its authors say, the last layer are AdamW's, at a learning rate of its own that the
    same schedule changes by the same factor. The last layer is the one that the network registers last, not the one
    that it calls last.

    Attributes:
        adjust_lr_fn: how the learning rate goes with the shape of a matrix, as torch documents it: ``original``
            (Jordan), ``match_rms_adamw`` (Moonshot: lr and weight decay as of AdamW) or ``spectral_unclamped``
            (Bernstein).
        head: whether Muon serves the last layer, too.
        adamw_lr: AdamW's learning rate.
    """

    decays: ClassVar[Literal["decoupled"]] = "decoupled"
    kind: Literal["muon"]
    lr: PositiveFloat = 0.02
    momentum: Fraction = 0.95
    nesterov: bool = True
    ns_steps: Positive = 5
    adjust_lr_fn: Literal["original", "match_rms_adamw", "spectral_unclamped"] = "original"
    head: bool = False
    adamw_lr: PositiveFloat = 3e-4

    def parts(self, model: nn.Module) -> dict[str, list[nn.Parameter]]:
        from bnpbench.updates.muon import hidden_matrices

        matrices = hidden_matrices(model, head=self.head)
        own = set(map(id, matrices))
        return {self.kind: matrices, str(AdamW.word()): [p for p in model.parameters() if id(p) not in own]}

    def make_for(
        self, model: nn.Module, *, weight_decay: float, fused: bool, capturable: bool
    ) -> torch.optim.Optimizer:
        import torch

        from bnpbench.updates.muon import MuonBesideAdamW

        matrices, others = self.parts(model).values()
        if not matrices:
            raise NotApplicable(f"{self.kind} serves the matrices of hidden layers, and the network has none")
        options: dict[str, Any] = {"weight_decay": weight_decay, "fused": fused, "capturable": capturable}
        like = torch.optim.Muon(
            [torch.nn.Parameter(torch.empty(1, 1))],  # none of its own: torch's takes no kernels
            lr=self.lr,
            weight_decay=weight_decay,
            momentum=self.momentum,
            nesterov=self.nesterov,
            ns_steps=self.ns_steps,
            adjust_lr_fn=self.adjust_lr_fn,
        )
        rest = AdamW.made(lr=self.adamw_lr).make(others, **options) if others else None
        assert rest is None or isinstance(rest, torch.optim.AdamW)
        return MuonBesideAdamW(matrices, rest, like)

    def follow(self, optimizer: torch.optim.Optimizer, lr: Tensor) -> None:
        import torch

        from bnpbench.updates.muon import MuonBesideAdamW

        assert isinstance(optimizer, MuonBesideAdamW)
        own, *others = optimizer.param_groups
        own["lr"], rate = lr, lr * (self.adamw_lr / self.lr)
        for group in others:
            group["lr"] = rate
        optimizer.follow = lambda: torch.mul(lr, self.adamw_lr / self.lr, out=rate)
