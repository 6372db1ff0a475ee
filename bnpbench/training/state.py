"""The whole state of a cell in training: a snapshot of it, restored in place, kept on disk."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from bnpbench.files import fresh

if TYPE_CHECKING:
    from bnpbench.methods.base import Preconditioner


_ROWS_BYTES = 2**30  # of a checkpoint, for the rows of epochs and steps so far
_COPIES = 8  # of the weights: those that optimizers keep are fewer
_FACTORS = 5  # square matrices of a weight's rows and of its columns: those that preconditioners keep are fewer
_DIGEST = hashlib.sha256().digest_size


def seed_for(seed: int, stream: str) -> int:
    """An independent 63-bit seed for each named stream of a cell's seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}".encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class TrainingState:
    """Everything that training changes.

    Attributes:
        model: weights and normalization statistics.
        optimizer: its moments and step counts.
        preconditioner: with its running statistics, if the method has one.
        generators: the cell's own random streams.
        scaler: of the loss, if the precision has one.
        in_place: whether the optimizer's state consists of tensors alone that stay where they are, as a step needs that
            was compiled or recorded, and that are a fresh start when they are zero; else it is replaced.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    preconditioner: Preconditioner | None
    generators: dict[str, torch.Generator]
    scaler: GradScaler | None = None
    in_place: bool = True

    def snapshot(self) -> dict[str, Any]:
        """A copy that later steps do not change; made of tensors, numbers, strings, lists and dicts only."""
        counters = self._counters()
        return {
            "model": _cloned(self.model.state_dict()),
            "optimizer": _cloned(self.optimizer.state_dict()["state"]),
            **({"counters": counters} if any(counters) else {}),
            "preconditioner": _cloned(self.preconditioner.state_dict()) if self.preconditioner else {},
            "generators": {name: g.get_state() for name, g in self.generators.items()},
            **({"scaler": self.scaler.state_dict()} if self.scaler else {}),
        }

    def restore(self, taken: dict[str, Any]) -> None:
        """Write a state that ``snapshot`` gave into the tensors that are there now.

        An optimizer state that did not exist then is zeroed, which torch's SGD and Adam read as a fresh start.
        """
        self.model.load_state_dict(taken["model"])
        if self.preconditioner:
            self.preconditioner.load_state_dict(taken["preconditioner"])
        self._restore_counters(taken.get("counters"))
        self._restore_optimizer(taken["optimizer"])
        if self.scaler:
            self.scaler.load_state_dict(taken["scaler"])
        for name, generator in self.generators.items():
            generator.set_state(taken["generators"][name])

    @property
    def most_bytes(self) -> int:
        """How many bytes a checkpoint with this state may have."""
        copies = sum(t.nbytes for t in (*self.model.parameters(), *self.model.buffers()))
        shapes = [(len(p), p[0].numel(), p.itemsize) for p in self.model.parameters() if p.dim() > 1 and p.numel()]
        factors = sum((rows**2 + (columns + 1) ** 2) * size for rows, columns, size in shapes)
        return _ROWS_BYTES + _COPIES * copies + _FACTORS * factors

    @property
    def optimizer_bytes(self) -> int:
        """Bytes of memory that the tensors of the optimizer's state stand in, each counted once."""
        storages = [tensor.untyped_storage() for tensor in _tensors(self.optimizer.state)]
        return sum({storage._cdata: storage.nbytes() for storage in storages}.values())

    def resume_from(self, taken: dict[str, Any]) -> None:
        """``restore`` for what comes from a file.

        Raises:
            DamagedState: that is no state of this model and optimizer; everything is as it was before.
        """
        before, begun = self.snapshot(), bool(self.optimizer.state)
        try:
            self.restore(taken)
            if not _equal(self.snapshot(), taken):
                raise DamagedState("it holds something else than the state of this cell")
        except Exception as error:  # torch documents no set of errors for a state that does not fit
            if not begun:
                self.optimizer.state.clear()
            self.restore(before)
            raise DamagedState(str(error) or type(error).__name__) from error

    def _counters(self) -> list[dict[str, float]]:
        """What steps have put into the optimizer's groups beside its options; torch's own put nothing there."""
        options = {"params", *self.optimizer.defaults}
        return [
            {name: value for name, value in group.items() if name not in options and type(value) in (int, float)}
            for group in self.optimizer.param_groups
        ]

    def _restore_counters(self, taken: list[dict[str, float]] | None) -> None:
        groups, now = self.optimizer.param_groups, self._counters()
        for group, before, then in zip(groups, now, taken or [{}] * len(groups), strict=True):
            for name in before.keys() - then.keys():
                del group[name]
            group.update(then)

    def _restore_optimizer(self, taken: dict[int, dict[str, Any]]) -> None:
        if not self.in_place:
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            self.optimizer.state.clear()
            for number, state in taken.items():
                self.optimizer.state[parameters[number]] = _cloned(state, parameters[number].device)
            return
        if not self.optimizer.state:  # before its first step: let torch build the state
            groups = self.optimizer.param_groups
            rates = [group["lr"] for group in groups]
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": _cloned(taken)})
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate  # the tensor that the schedule writes to, of which torch has made a copy
            return
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        with torch.no_grad():
            for number, parameter in enumerate(parameters):
                then = taken.get(number, {})
                for name, value in self.optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        value.copy_(then[name]) if name in then else value.zero_()


class DamagedState(Exception):
    """A checkpoint that cannot be gone on from; the text is the reason."""


def random_state() -> dict[str, Any]:
    """The process-wide random states of torch and NumPy."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    _, words, *rest = np.random.get_state(legacy=True)
    numpy = {"words": torch.from_numpy(np.asarray(words, dtype=np.int64)), "rest": rest}
    return {"cpu": torch.get_rng_state(), "cuda": cuda, "numpy": numpy}


def set_random_state(taken: dict[str, Any]) -> None:
    """Put back what ``random_state`` gave."""
    torch.set_rng_state(taken["cpu"])
    if "numpy" in taken:  # not in what was written before it was kept
        np.random.set_state(("MT19937", taken["numpy"]["words"].numpy().astype(np.uint32), *taken["numpy"]["rest"]))
    if taken["cuda"]:
        torch.cuda.set_rng_state_all(taken["cuda"])


def save(content: dict[str, Any], path: Path, temporary: Path) -> None:
    """Write a checkpoint whole or not at all, with its SHA-256 in front: a flipped bit would else change every epoch.

    Args:
        content: tensors, numbers, strings, lists and dicts.
        path: of the checkpoint; its folder is made.
        temporary: name beside it that is written first, over what a killed process left there.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with fresh(temporary).open("wb") as file:
            file.write(hashlib.sha256(buffer.getbuffer()).digest())
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path, limit: int = _ROWS_BYTES) -> dict[str, Any] | None:
    """A checkpoint, or None where there is none. Loads tensors and plain values only, never code, nor what is packed.

    Args:
        path: of the checkpoint.
        limit: bytes that are read; of a larger file nothing is.

    Raises:
        DamagedState: it is not what ``save`` wrote.
    """
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise DamagedState("not a regular file")
        if status.st_size > limit:
            raise DamagedState(f"{status.st_size} bytes, more than the {limit} that are read")
        written = memoryview(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedState(error.strerror or str(error)) from error
    digest, pickled = written[:_DIGEST], written[_DIGEST:]
    if hashlib.sha256(pickled).digest() != digest:
        raise DamagedState("its checksum is wrong")
    try:
        with zipfile.ZipFile(io.BytesIO(pickled)) as parts:  # torch packs nothing, but would unpack gigabytes
            if sum(part.file_size for part in parts.infolist()) > len(pickled):
                raise DamagedState("it is packed")
        content = torch.load(io.BytesIO(pickled), map_location="cpu", weights_only=True)
    except DamagedState:
        raise
    except Exception as error:  # torch documents no set of errors
        raise DamagedState(f"torch cannot load it: {type(error).__name__}") from error
    if not isinstance(content, dict):
        raise DamagedState(f"it holds a {type(content).__name__}")
    return content


def _equal(value: object, other: object) -> bool:
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        value = value.cpu()
        alike = value.shape == other.shape and value.dtype == other.dtype
        return alike and torch.allclose(value, other, 0, 0, equal_nan=value.dtype.is_floating_point)
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_equal(value[k], other[k]) for k in value)
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(_equal, value, other))
    return type(value) is type(other) and bool(value == other)


def _tensors(value: object) -> Iterator[Tensor]:
    """Those that stand in dicts, lists and tuples, however deep; keys are none."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _cloned(value: Any, device: torch.device | None = None) -> Any:
    """A copy, with its tensors on a device; None: where they are."""
    if isinstance(value, Tensor):
        return value.detach().to(device, copy=True) if device else value.detach().clone()
    if isinstance(value, dict):
        return {k: _cloned(v, device) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_cloned(v, device) for v in value]
    return value
