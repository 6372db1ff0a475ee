"""A stand-in for a CUDA graph that runs on any device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Recorder(TorchDispatchMode):
    """Records the operators of a step and replays them on the same tensors, as a CUDA graph does."""

    def __init__(self) -> None:
        super().__init__()
        self.tape: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func._overloadpacket is not torch.ops.aten._local_scalar_dense, "a read on the host"
        assert func._overloadpacket is not torch.ops.aten.lift_fresh, "a copy of numbers of the host"
        result = func(*args, **(kwargs or {}))
        self.tape.append((func, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, result in self.tape:
            again = func(*args, **kwargs)
            returns = func._schema.returns
            if isinstance(result, list):  # one declaration for all tensors of a list
                returns = returns * len(result)
            for declared, old, new in zip(returns, _tuple(result), _tuple(again), strict=True):
                if isinstance(old, Tensor) and declared.alias_info is None and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def _tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
