"""A data set's tensors, held against its shape, and which of its training examples a run uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bnpbench.errors import DataError
from bnpbench.fields import Over
from bnpbench.reading.parts import split_sizes

LIMIT_SEED = 20220131  # of the order that train_limit takes the first of: one for all runs
CHUNK = 5000  # examples that are widened to float64 at once


@dataclass(frozen=True)
class Data:
    """The tensors of a data set: examples (n, *shape) in float32 and labels (n,) in int64; of tokens both (n, length).

    Images have values in [0, 1] before they are standardized; ``synthetic`` has what its distribution gives.
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    validation_x: Tensor | None = None
    validation_y: Tensor | None = None


def choose(n: int, *, train_limit: int | None, validation: float, seed: int) -> tuple[Tensor, Tensor]:
    """Numbers of the training examples kept and of the validation examples, of ``n``, each in ascending order.

    The validation examples are drawn first, by ``seed``, so that each seed of a suite validates on others.
    ``train_limit`` keeps the first of one fixed random order of the whole training set, so that
    every seed trains on the same examples (but for those held out) and a larger limit adds to a
    smaller one.

    Raises:
        DataError: ``train_limit`` exceeds what there is, or ``validation`` holds out nothing.
    """
    kept, held_out = split_sizes(n, train_limit, validation)
    if validation and not held_out:
        raise DataError(f"validation = {validation} of {n} training examples holds out none; raise it or set it to 0")
    if train_limit is not None and train_limit > n - held_out:
        rest = f" that validation = {validation} leaves of {n}" if held_out else ""
        raise DataError(f"train_limit = {train_limit} exceeds the {n - held_out} training examples{rest}")
    chosen = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:held_out].sort().values
    left = torch.ones(n, dtype=torch.bool)
    left[chosen] = False
    order = torch.randperm(n, generator=torch.Generator().manual_seed(LIMIT_SEED))
    return order[left[order]][:kept].sort().values, chosen


def split(
    train_x: Tensor,
    train_y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    *,
    train_limit: int | None,
    validation: float,
    seed: int,
) -> Data:
    """The data set with its validation examples held out, then ``train_limit`` of the rest; see ``choose``."""
    kept, held_out = choose(len(train_x), train_limit=train_limit, validation=validation, seed=seed)
    if len(kept) == len(train_x):
        return Data(train_x, train_y, test_x, test_y)
    if not len(held_out):
        return Data(train_x[kept], train_y[kept], test_x, test_y)
    return Data(train_x[kept], train_y[kept], test_x, test_y, train_x[held_out], train_y[held_out])


def standardized(data: Data, mean: Over, std: Over) -> Data:
    """The data set less its mean, and what is left over its standard deviation, in place.

    Both are of the examples trained on, in float64, and serve the test and validation examples too. ``"pixel"`` takes
    them of each value of an example (He et al. 2015), ``"channel"`` of all values of a channel. What does not vary is
    not divided.

    Args:
        data: examples (n, channels, ...), changed.
        mean, std: over what each is taken; ``"none"`` leaves it away.
    """
    everything = [x for x in (data.train_x, data.test_x, data.validation_x) if x is not None]
    if mean != "none":
        center = _mean(data.train_x, mean, _zero(data.train_x, mean)).float()
        for x in everything:
            x.sub_(center)
    if std != "none":
        away = _mean(data.train_x, std, _zero(data.train_x, std))
        deviation = _mean(data.train_x, std, away, power=2).sqrt().float()
        for x in everything:
            x.div_(torch.where(deviation > 0, deviation, 1))
    return data


def _mean(x: Tensor, over: Over, center: Tensor, power: int = 1) -> Tensor:
    """The mean of (x - center)^power as (1, ...), in float64."""
    dims = [0] if over == "pixel" else [0, *range(2, x.ndim)]
    total = sum((part.sub(center).pow_(power).sum(dims, keepdim=True) for part in _widened(x)), torch.zeros(()))
    return total * (center.numel() / x.numel())


def _widened(x: Tensor) -> Iterator[Tensor]:
    return (part.double() for part in x.split(CHUNK))


def _zero(x: Tensor, over: Over) -> Tensor:
    shape = x.shape[1:] if over == "pixel" else (x.shape[1], *[1] * (x.ndim - 2))
    return x.new_zeros(1, *shape, dtype=torch.float64)


def contradiction(
    tensors: object, shape: tuple[int, ...], classes: int, train: int, test: int, tokens: bool = False
) -> str | None:
    """Where what was loaded is not as described, as parameters and operations are counted by; None where it is.

    Args:
        tensors: what should be training examples and labels, test examples and labels.
        shape: of one example.
        classes, train, test: numbers.
        tokens: whether examples are sequences of tokens, and labels the tokens that follow.
    """
    if not (isinstance(tensors, tuple) and len(tensors) == 4 and all(isinstance(each, Tensor) for each in tensors)):
        return "it gives no tuple of four tensors: training examples, their labels, test examples, their labels"
    for part, count, examples, labels in (("train", train, *tensors[:2]), ("test", test, *tensors[2:])):
        # float32; under another default type a generated data set comes in that
        floats, wholes = {torch.float32, torch.get_default_dtype()}, {torch.int64}
        for name, found, size, kinds in (
            ("examples", examples, (count, *shape), wholes if tokens else floats),
            ("labels", labels, (count, *shape) if tokens else (count,), wholes),
        ):
            if tuple(found.shape) != size or found.dtype not in kinds:
                wanted = torch.float32 if kinds is floats else torch.int64
                told = f"{found.dtype} of shape {tuple(found.shape)}, not {wanted} of shape {size}"
                return f"{part} {name} are {told}"
        for name, found in (("labels", labels), *([("examples", examples)] if tokens else [])):
            if count and not 0 <= found.min() <= found.max() < classes:
                low, high = int(found.min()), int(found.max())
                return f"{part} {name} go from {low} to {high}, not from 0 to {classes - 1}"
    return None
