"""The fused form of BNP: steps 2 to 5 of all layers by one function that a compiler made, and the update with them.

Run operator by operator, steps 4 and 5 go over each gradient three times, and on a GPU every operator is a kernel to
launch. Compiled, a layer is one loop over the rows of its gradient, and on a GPU one kernel, which finds the damping
anew for each row, so that it needs none of its own. A step that is compiled as a whole takes the same formulas
in, as a part of it.

Where the optimizer is known (:meth:`bnpbench.bnp.BNP.precondition_with`), the same loop updates the weights, by
the formulas of :mod:`bnpbench.bnp.joined` on what the optimizer itself keeps.

The layouts of all tensors are constants of the compiled function; q^2, which goes by the batch, and learning rates are
arguments.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import accumulate, islice
from typing import Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from bnpbench.bnp.algorithms import (
    batch_statistics,
    damped_variance,
    in_memory,
    precondition_rows,
    statistics_by_sums,
    update_running,
)
from bnpbench.bnp.joined import Joined, Place, Update, begun, joins, place, seen_by
from bnpbench.bnp.layer import Layer
from bnpbench.bnp.running import Hyperparameters, Section
from bnpbench.bnp.statistics import Batch

Call = Callable[..., object]

LAYOUTS = 8
"""So many are compiled for one BNP. Where the layers with gradients change from step to step, the others are plain.

With the update, and the rows, in the same function, batch sizes and the optimizer's options are of the layout, too:
where they change as often, nothing is joined any more.
"""

_BATCHES = 64  # q^2 of so many batch sizes are kept on the device


def pays(device_type: str) -> bool:
    """Whether the fused form is to be preferred on such devices: where launches are what a step waits for.

    On a CPU compiling takes seconds, and a step of the size that this helps gains some hundredths of a millisecond.
    """
    return device_type == "cuda" and find_spec("triton") is not None


@dataclass(frozen=True)
class Gradient:
    """What is constant of a layer's gradients.

    Attributes:
        begin: of the layer's channels among those of its section.
        channels: of its input.
        groups: of a convolution, else 1.
        shape: of the weight's gradient.
        bias: whether there is one of a bias.
    """

    begin: int
    channels: int
    groups: int
    shape: tuple[int, ...]
    bias: bool


@dataclass(frozen=True)
class Layout:
    """What is constant of a step on one device.

    Attributes:
        device: of all tensors.
        length: channels of all layers in the section.
        gradients: of the layers that the step preconditions.
        rho, eps1, eps2, center, standardize: of :class:`bnpbench.bnp.BNP`.
        batch: whether the statistics of the batch take the place of the running values.
        rows: of each layer of the section, where its channels begin, and whether mean and variance are given or rows;
            empty where the statistics of all are one tensor; None where step 2 has been done.
        update: of the optimizer, where its step is taken too.
        threads: of a CPU, that the code is made for.
    """

    device: torch.device
    length: int
    gradients: tuple[Gradient, ...]
    rho: float
    eps1: float
    eps2: float
    center: bool
    standardize: bool
    batch: bool
    rows: tuple[tuple[int, bool], ...] | None
    update: Update | None
    threads: int

    def step(self, values: Tensor, factors: Sequence[float | Tensor] | Tensor, *tensors: Tensor) -> None:
        """Steps 2 to 5, and the update.

        Args:
            values: running means, then variances of all layers of the section, (2 length,), before step 2; overwritten.
                Where that has been done, those that the step goes by.
            factors: 1 / q^2 of each layer that is preconditioned.
            tensors: in turn means and variances of this step, as ``rows`` says; gradients of weights and biases, which
                are overwritten where they update nothing; and :attr:`bnpbench.bnp.joined.Joined.tensors`.
        """
        remaining = iter(tensors)
        if self.rows is not None:
            values = self._folded(values, remaining)
        means, variances = values[: self.length], values[self.length :]
        if not self.center:
            means = torch.zeros_like(means)
        columns = self._columns(variances, factors)
        count = sum(1 + own.bias for own in self.gradients)
        gradients, rest = list(islice(remaining, count)), list(remaining)
        updates = self.update.of(rest) if self.update is not None else {}
        # Matrices, for their loops are long; but a kernel of its own would write them to other memory, and copy.
        flat = torch.compiler.is_compiling() or self.device.type == "cpu"
        numbers = iter(range(count))
        for number, own in enumerate(self.gradients):
            at, bias_at = next(numbers), next(numbers) if own.bias else None
            weight, bias = gradients[at], None if bias_at is None else gradients[bias_at]
            mean = self._beside(own, means[own.begin : own.begin + own.channels])
            last = not weight.is_contiguous()
            rows = [
                _in_memory(tensor, weight.shape, last) if flat else tensor for tensor in (weight, mean, columns[number])
            ]
            shape = rows[0].shape
            if flat:
                rows = [tensor.flatten(1) for tensor in rows]
            new_weight, new_bias = precondition_rows(rows[0], bias, rows[1], rows[2], factors[number])
            new_weight = new_weight.view(shape)
            if flat and last:
                new_weight = new_weight.movedim(-1, 1)
            update = updates.get(at)
            if update is None:
                weight.copy_(new_weight)
            else:
                update(new_weight, partial(_by_column, own.shape) if flat else _everywhere)
            if bias_at is not None and bias is not None and new_bias is not None:
                update = updates.get(bias_at)
                bias.copy_(new_bias) if update is None else update(new_bias, _everywhere)

    def _folded(self, values: Tensor, tensors: Iterator[Tensor]) -> Tensor:
        """Step 2; the values that the step goes by."""
        assert self.rows is not None
        if self.rows:
            means, variances = [], []
            for begin, moments in self.rows:
                mean = next(tensors)
                if moments:
                    variance = next(tensors)
                else:
                    rows = mean.view(-1, mean.shape[-1])
                    before = values[begin : begin + rows.shape[1]]
                    if len(rows) > 1 and self.device.type == "cpu":
                        mean, variance = statistics_by_sums(rows)
                    else:
                        mean, variance = batch_statistics(rows, running_mean=before)
                means.append(mean)
                variances.append(variance)
            statistics = torch.cat(means + variances)
        else:
            statistics = next(tensors)
        new = in_memory(torch.lerp(values, statistics, 1.0 - self.rho), traced=True)
        values.copy_(new)
        return statistics if self.batch else new

    def _columns(self, variances: Tensor, factors: Sequence[float | Tensor] | Tensor) -> list[Tensor]:
        """Step 3: 1 / (q^2 sigma~^2) beside the rows of each layer."""
        pieces = [variances[own.begin : own.begin + own.channels] for own in self.gradients]
        if not self.standardize:
            found = [torch.ones_like(piece) * factors[number] for number, piece in enumerate(pieces)]
            return [self._beside(own, piece) for own, piece in zip(self.gradients, found, strict=True)]
        if self.device.type == "cuda":
            rows = [self._by_row(own, piece) for own, piece in zip(self.gradients, pieces, strict=True)]
            return [row * factors[number] for number, row in enumerate(rows)]
        found = [
            damped_variance(piece, self.eps1, self.eps2, own.groups).reciprocal() * factors[number]
            for number, (own, piece) in enumerate(zip(self.gradients, pieces, strict=True))
        ]
        # One tensor, for that makes the compiler compute it, once, instead of inside the loops over the gradients.
        found = list(torch.split(torch.cat(found), [own.channels for own in self.gradients]))
        return [self._beside(own, piece) for own, piece in zip(self.gradients, found, strict=True)]

    def _by_row(self, own: Gradient, variance: Tensor) -> Tensor:
        """1 / sigma~^2 with a maximum for each row, so that it is found by the kernel that goes over the row."""
        inside = list(range(1, len(own.shape)))
        beside = self._beside(own, variance)
        largest = beside.expand(own.shape).amax(inside, keepdim=True)
        return (beside + (largest * self.eps1 + self.eps2)).reciprocal()

    def _beside(self, own: Gradient, vector: Tensor) -> Tensor:
        """(c,) as what multiplies the columns of a gradient."""
        outputs, inputs, *kernel = own.shape
        rows = vector.view(own.groups, 1, inputs)
        if own.groups > 1:
            rows = rows.expand(-1, outputs // own.groups, -1)
        return rows.reshape(-1, inputs, *[1] * len(kernel))


def _in_memory(tensor: Tensor, shape: torch.Size, last: bool) -> Tensor:
    """A weight's gradient, or what stands beside its rows, in the order of memory: ``last`` with the channels last."""
    whole = tensor.expand(-1, *shape[1:])
    return whole.movedim(1, -1) if last else whole


def _by_column(shape: tuple[int, ...], number: Tensor) -> Tensor:
    """A number once for each column of the rows of a weight.

    In memory, as the compiler takes what is joined: loops over weights then stay loops over rows, as those over their
    gradients are, and it makes one of both.
    """
    half = shape[1] // 2
    parts = [number.expand(1, count, *shape[2:]) for count in (half, shape[1] - half)]
    return torch.cat(parts, 1)


def _everywhere(number: Tensor) -> Tensor:
    return number


@lru_cache(maxsize=64)
def compiled(layout: Layout, places: tuple[Place, ...]) -> Call:
    """The step of a layout on tensors at ``places``, compiled: by these constants and not by torch's cache of eight.

    Raises:
        Exception: of any kind: the compiler raises what it stumbled on.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    from bnpbench.bnp.inductor import compile_graph, shapes

    with shapes(), torch.no_grad():
        samples = [
            torch.empty_strided(shape, stride, dtype=dtype, device=layout.device) for shape, stride, dtype in places
        ]
        graph = make_fx(layout.step)(*samples)
    # What is both stored and added up, is computed once in one loop: if it is kept as a tensor, where it is a gradient;
    # if it is not, where it updates something else.
    return compile_graph(graph, samples, {"realize_reads_threshold": 0 if layout.update is None else 64})


@dataclass(frozen=True)
class Ready:
    """A function that is ready to be called.

    Attributes:
        call: takes what :meth:`Layout.step` takes.
        layers: that it preconditions.
        apart: whether it takes means and variances layer by layer.
        joined: the optimizer's part, if it takes that.
    """

    call: Call
    layers: tuple[Layer, ...]
    apart: bool
    joined: Joined | None

    def tensors(self, batch: Batch) -> list[Tensor]:
        """Of this step."""
        found = [one for call in batch.calls if call for one in call.tensors] if self.apart else [batch.whole]
        found += _gradients(self.layers)
        return found if self.joined is None else found + self.joined.tensors


class Fused:
    """Preconditions in the fused form, for one BNP.

    Args:
        asked: as of :class:`bnpbench.bnp.BNP`.
        layers: that it tracks.

    Attributes:
        layers: that the last step preconditioned so; before the first, those that are to be.
        reason: why not all were, although they were to be.
        optimizer: whose step is to be taken with those of BNP.
        updated: whether it was, and nothing is left to the optimizer.
        joining: whether it is to be from the next step on.
    """

    def __init__(self, asked: bool | Literal["auto"], layers: Sequence[Layer]) -> None:
        self.asked = asked
        self.layers = tuple(layer for layer in layers if self.wanted(layer.weight.device.type))
        self.reason: str | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.updated = self.joining = False
        self._joins, self._gave_up = True, False
        self._ready: dict[object, Ready] = {}
        self._scales: dict[object, Tensor] = {}

    def wanted(self, device_type: str) -> bool:
        """Whether layers on such devices are to be preconditioned so."""
        return pays(device_type) if self.asked == "auto" else self.asked

    def forget(self) -> None:
        """The running values were laid out anew."""
        self._ready.clear()
        self._scales.clear()

    def precondition(
        self, section: Section, layers: Sequence[Layer], batch: Batch, options: Hyperparameters
    ) -> Sequence[Layer]:
        """Steps 2 to 5 on ``.grad``, in place.

        Args:
            section: of the layers, its running values those before this step.
            layers: that have gradients.
            batch: of this step.
            options: as of :meth:`Section.terms`.

        Returns:
            The layers that are preconditioned now; where there are none, step 2 is left to be done, too.
        """
        if not self.wanted(section.device.type) or section.device.type == "meta":  # where operators are counted
            return ()
        taken = self._taken(section, layers, batch, options)
        if taken != self.layers:  # these have changed, or there are layers on other devices too
            self.layers = (*(layer for layer in self.layers if layer not in section.members), *taken)
        return taken

    def _taken(
        self, section: Section, layers: Sequence[Layer], batch: Batch, options: Hyperparameters
    ) -> tuple[Layer, ...]:
        """Steps 2 to 5 of the layers that are given back."""
        if torch.compiler.is_compiling():  # the whole step is: what it takes in is nothing that stays
            fitting = tuple(layer for layer in layers if _fits(section, layer))
            if fitting:
                update_running(section.values, batch.whole, options.rho)
                inverse = [1.0 / batch.scales[layer] if options.scale else 1.0 for layer in fitting]
                values = batch.whole if options.batch else section.values
                _layout(section, fitting, options, None, None).step(values, inverse, *_gradients(fitting))
            return fitting
        if self._gave_up or _get_current_dispatch_mode() is not None:  # it looks at operators; compiled code has none
            return ()
        optimizer = self.optimizer if self._joins else None
        if optimizer is not None and not joins(optimizer, section.device):
            optimizer = None
        joined, self.joining = self.joining, optimizer is not None
        if optimizer is not None and not (joined and begun(optimizer)):
            return ()  # what the optimizer keeps is made by its own first step; and calls are to be kept from now on
        pieces = [one if one is None else one.form for one in batch.calls]
        key: list[object] = [section, options, torch.get_num_threads(), *map(_seen, layers), *pieces]
        if optimizer is not None:
            key += seen_by(optimizer)
        ready = self._ready.get(tuple(key))
        if ready is None or (ready.joined is not None and not ready.joined.fits()):
            ready = self._prepared(section, layers, batch, options, optimizer)
            if ready is None:
                return ()
            self._ready[tuple(key)] = ready
        factors = self._factors(section, [batch.scales[layer] if options.scale else 1.0 for layer in ready.layers])
        ready.call(section.values, factors, *ready.tensors(batch))
        if ready.joined is not None:
            ready.joined.use_up()
            self.updated = ready.joined.whole
        return ready.layers

    def _prepared(
        self,
        section: Section,
        layers: Sequence[Layer],
        batch: Batch,
        options: Hyperparameters,
        optimizer: torch.optim.Optimizer | None,
    ) -> Ready | None:
        """A function for tensors that lie as they do now; None where there is none."""
        if _captures(section.device):
            return None
        if (
            len(self._ready) == LAYOUTS and optimizer is not None
        ):  # batch sizes change, or options do: join none of them
            self._joins = self.joining = False
            self._ready.clear()
            return None
        if len(self._ready) == LAYOUTS:
            self.reason = f"more than {LAYOUTS} layouts of gradients: other layers have some in each step"
            return None
        fitting = tuple(layer for layer in layers if _fits(section, layer))
        if not fitting:
            return None
        whole = len(fitting) == len(layers)
        # Of a layer without rows the batch holds the running values themselves, which are overwritten.
        apart = whole and bool(batch.calls) and None not in batch.calls
        apart &= all(call is not None and call.tensors[0].dtype == section.values.dtype for call in batch.calls)
        if section.device.type == "cuda":  # putting together what is known is a kernel, and the compiler makes several
            apart &= all(call is not None and call.inputs is not None for call in batch.calls)
        joined = Joined(optimizer, _gradients(fitting)) if optimizer is not None and whole else None
        begins = accumulate(section.sizes, initial=0)
        rows = (
            tuple((begin, call.known) for begin, call in zip(begins, batch.calls, strict=False) if call)
            if apart
            else ()
        )
        layout = _layout(section, fitting, options, rows, joined.update if joined is not None else None)
        ready = Ready(layout.step, fitting, apart, joined)
        factors = torch.ones(len(fitting), device=section.device, dtype=section.values.dtype)
        try:
            # What fails leaves everything alone.
            trial = [tensor.clone() for tensor in (section.values, factors, *ready.tensors(batch))]
            call = compiled(layout, tuple(map(place, trial)))
            call(*trial)
        except Exception as error:
            self._gave_up = True
            self.reason = (
                f"it does not compile here ({type(error).__name__}: {str(error).strip().partition(chr(10))[0]})"
            )
            warnings.warn(
                f"BNP goes on in its plain form, for the fused one cannot be had: {self.reason}", stacklevel=8
            )
            return None
        return replace(ready, call=call)

    def _factors(self, section: Section, scales: Sequence[float | Tensor]) -> Tensor:
        """1 / q^2 of each layer, (layers,); where the host knows them, they are kept."""
        if any(isinstance(scale, Tensor) for scale in scales):
            return _filled(section, scales)
        key = section, *scales
        kept = self._scales.get(key)
        if kept is None:
            kept = _filled(section, scales)
            if not _captures(section.device):  # what is made in a graph's memory has a value when that is replayed
                if len(self._scales) == _BATCHES:
                    self._scales.clear()
                self._scales[key] = kept
        return kept


def _filled(section: Section, scales: Sequence[float | Tensor]) -> Tensor:
    """1 / q^2 on the device: numbers are filled in there, because a copy to it cannot be captured in a CUDA graph."""
    values = section.values
    return torch.stack([s if isinstance(s, Tensor) else values.new_full((), s) for s in scales]).reciprocal()


def _captures(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _gradients(layers: Iterable[Layer]) -> list[Tensor]:
    """Those of weights and biases, in turn."""
    return [grad for layer in layers for grad in (layer.weight.grad, layer.bias_grad) if grad is not None]


def _seen(layer: Layer) -> tuple[object, ...]:
    """What a step is compiled for, of a layer, that may change from step to step."""
    weight, bias = layer.weight.grad, layer.bias_grad
    assert weight is not None
    return layer, weight.dtype, weight.stride(), bias is None or (bias.dtype, bias.stride())


def _fits(section: Section, layer: Layer) -> bool:
    """Whether a layer's gradients are in the precision of the statistics, and lie without gaps."""
    weight, bias = layer.weight.grad, layer.bias_grad
    assert weight is not None
    whole = weight.is_contiguous() or weight.movedim(1, -1).is_contiguous()
    one = bias is None or (bias.dtype == weight.dtype and bias.is_contiguous())
    return whole and one and weight.dtype == section.values.dtype


def _layout(
    section: Section,
    layers: Sequence[Layer],
    options: Hyperparameters,
    rows: tuple[tuple[int, bool], ...] | None,
    update: Update | None,
) -> Layout:
    begins = dict(zip(section.layers, accumulate(section.sizes, initial=0), strict=False))
    gradients = [
        Gradient(begins[layer], layer.channels, layer.groups, tuple(layer.weight.shape), layer.bias_grad is not None)
        for layer in layers
    ]
    return Layout(
        section.device,
        section.length,
        tuple(gradients),
        options.rho,
        options.eps1,
        options.eps2,
        options.center,
        options.standardize,
        options.batch,
        rows,
        update,
        torch.get_num_threads(),
    )
