"""Ranks of one group, processes of this machine."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch.multiprocessing as mp

from bnpbench.execution.children import start_forkserver


def together(work: Callable[..., None], count: int, *arguments: Any) -> None:
    """``work(rank, *arguments)`` in ``count`` processes that find torch imported; what one raises is raised here."""
    start_forkserver()
    mp.start_processes(_frozen, (work, arguments), nprocs=count, start_method="forkserver")


def _frozen(rank: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    gc.freeze()  # every epoch begins with a collection, which need not look at what was imported
    work(rank, *arguments)
