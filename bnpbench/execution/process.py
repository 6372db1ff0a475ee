"""The process that measures: set up as the settings ask, its random states, what its failures are called."""

from __future__ import annotations

import gc
import os
from typing import Any

import psutil
import torch

from bnpbench.errors import NotApplicable
from bnpbench.suite import Settings
from bnpbench.suite.plugins import place_of
from bnpbench.training.step import set_precision


def configure(settings: Settings, gpu: int, cores: tuple[int, ...] | None = None) -> None:
    """Set this process up as a cell's settings ask: device, threads, precision, cores, determinism."""
    assert settings.threads != "auto"
    torch.set_num_threads(settings.threads)
    if settings.device == "cuda":
        torch.cuda.set_device(gpu)
    set_precision(settings)
    torch._dynamo.reset()  # past eight recompilations of one code object torch would run eagerly without a word
    gc.freeze()  # what was imported lives as long as the process: no collection need look at it
    if cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    if settings.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)


def failure(error: Exception) -> tuple[str, str]:
    """Status and message of a cell that ended in an exception."""
    if isinstance(error, NotApplicable):
        return "not-applicable", str(error)
    place = place_of(error)
    where = "" if place is None else f" ({place.file.name}:{place.line})"
    text = " ".join(f"{type(error).__name__}: {error}{where}".split())
    memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text
    if not memory:
        return "error", shortened(text, 1000)
    free = psutil.virtual_memory().available
    return "oom", f"{shortened(text, 800)} ({free / 2**30:.1f} GiB were free in the host's memory)"


def shortened(text: str, length: int) -> str:
    """At most so many characters of a message: its first words say what failed, its end says why."""
    if len(text) <= length:
        return text
    head = length // 5
    return f"{text[:head]} ... {text[len(text) - (length - head - 5) :]}"


def random_state() -> dict[str, Any]:
    """The process-wide random states of torch."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def set_random_state(taken: dict[str, Any]) -> None:
    """Put back what ``random_state`` gave."""
    torch.set_rng_state(taken["cpu"])
    if taken["cuda"]:
        torch.cuda.set_rng_state_all(taken["cuda"])
