"""Adam with decoupled weight decay."""

from __future__ import annotations

from typing import ClassVar, Literal

from bnpbench.optimizers.adam import AnyAdam


class AdamW(AnyAdam):
    """torch.optim.AdamW (Loshchilov and Hutter 2019): ``weight_decay`` shrinks the weights and joins no gradient."""

    torch_name: ClassVar[str] = "AdamW"
    decays: ClassVar[Literal["decoupled"]] = "decoupled"
    kind: Literal["adamw"]
