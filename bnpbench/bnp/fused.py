"""The fused form of BNP: steps 3 to 5 of all layers by one function that a compiler made.

Run operator by operator, steps 4 and 5 go over each gradient three times, and on a GPU every operator is a kernel to
launch. Compiled, a layer is one loop over the rows of its gradient, and on a GPU one kernel, which finds the damping
anew for each row, so that it needs none of its own. A step that is compiled as a whole takes the same formulas
in, as a part of it.

The layouts of the gradients are constants of the compiled function; q^2, which goes by the batch, is an argument.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from bnpbench.bnp.algorithms import damped_variance, precondition_rows
from bnpbench.bnp.layer import Layer
from bnpbench.bnp.running import Hyperparameters, Section

Call = Callable[..., object]

LAYOUTS = 8
"""So many are compiled for one BNP. Where the layers with gradients change from step to step, the others are plain."""

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
        shape, stride: of the weight's gradient.
        bias: whether there is one of a bias.
    """

    begin: int
    channels: int
    groups: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    bias: bool


@dataclass(frozen=True)
class Layout:
    """What is constant of a step on one device.

    Attributes:
        device, dtype: of all tensors.
        length: channels of all layers in the section.
        gradients: of the layers that the step preconditions.
        eps1, eps2, center, standardize: of :class:`bnpbench.bnp.BNP`.
        threads: of a CPU, that the code is made for.
    """

    device: torch.device
    dtype: torch.dtype
    length: int
    gradients: tuple[Gradient, ...]
    eps1: float
    eps2: float
    center: bool
    standardize: bool
    threads: int

    def step(self, values: Tensor, factors: Sequence[float | Tensor] | Tensor, *gradients: Tensor) -> None:
        """Steps 3 to 5.

        Args:
            values: means, then variances of all layers of the section, (2 length,).
            factors: 1 / q^2 of each layer that is preconditioned.
            gradients: of weights and biases, in turn; overwritten.
        """
        means, variances = values[: self.length], values[self.length :]
        if not self.center:
            means = torch.zeros_like(means)
        columns = self._columns(variances, factors)
        # Matrices, for their loops are long; but a kernel of its own would write them to other memory, and copy.
        flat = torch.compiler.is_compiling() or self.device.type == "cpu"
        remaining = iter(gradients)
        for number, own in enumerate(self.gradients):
            weight, bias = next(remaining), next(remaining) if own.bias else None
            mean = self._beside(own, means[own.begin : own.begin + own.channels])
            last = not weight.is_contiguous()
            rows = [
                _in_memory(tensor, weight.shape, last) if flat else tensor for tensor in (weight, mean, columns[number])
            ]
            place = rows[0]
            if flat:
                rows = [tensor.flatten(1) for tensor in rows]
            new_weight, new_bias = precondition_rows(rows[0], bias, rows[1], rows[2], factors[number])
            place.copy_(new_weight.view(place.shape))
            if bias is not None and new_bias is not None:
                bias.copy_(new_bias)

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

    def samples(self) -> list[Tensor]:
        """Arguments of ``step``, without values."""
        values = [2 * self.length, len(self.gradients)]
        found = [torch.empty(size, device=self.device, dtype=self.dtype) for size in values]
        for own in self.gradients:
            found.append(torch.empty_strided(own.shape, own.stride, device=self.device, dtype=self.dtype))
            if own.bias:
                found.append(torch.empty(own.shape[0], device=self.device, dtype=self.dtype))
        return found


def _in_memory(tensor: Tensor, shape: torch.Size, last: bool) -> Tensor:
    """A weight's gradient, or what stands beside its rows, in the order of memory: ``last`` with the channels last."""
    whole = tensor.expand(-1, *shape[1:])
    return whole.movedim(1, -1) if last else whole


@lru_cache(maxsize=64)
def compiled(layout: Layout) -> Call:
    """The step of a layout, compiled: by the same layout's constants and not by torch's cache of eight.

    Raises:
        Exception: of any kind: the compiler raises what it stumbled on.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    from bnpbench.bnp.inductor import compile_graph, shapes

    with shapes():
        samples = layout.samples()
        graph = make_fx(layout.step)(*samples)
    # Kept as a tensor, what is stored and added up is computed once, and both happen in one loop.
    return compile_graph(graph, samples, {"realize_reads_threshold": 0})


class Fused:
    """Preconditions in the fused form, for one BNP.

    Args:
        asked: as of :class:`bnpbench.bnp.BNP`.
        layers: that it tracks.

    Attributes:
        layers: that the last step preconditioned so; before the first, those that are to be.
        reason: why not all were, although they were to be.
    """

    def __init__(self, asked: bool | Literal["auto"], layers: Sequence[Layer]) -> None:
        self.asked = asked
        self.layers = tuple(layer for layer in layers if self.wanted(layer.weight.device.type))
        self.reason: str | None = None
        self._gave_up = False
        self._ready: dict[object, tuple[Call, tuple[Layer, ...]]] = {}
        self._scales: dict[object, Tensor] = {}

    def wanted(self, device_type: str) -> bool:
        """Whether layers on such devices are to be preconditioned so."""
        return pays(device_type) if self.asked == "auto" else self.asked

    def forget(self) -> None:
        """The running values were laid out anew."""
        self._ready.clear()
        self._scales.clear()

    def precondition(
        self,
        section: Section,
        layers: Sequence[Layer],
        statistics: Tensor,
        scales: Mapping[Layer, float | Tensor],
        options: Hyperparameters,
    ) -> Sequence[Layer]:
        """Steps 3 to 5 on ``.grad``, in place.

        Args:
            section: of the layers, its running values those after this step.
            layers: that have gradients.
            statistics, scales, options: as of :meth:`Section.terms`.

        Returns:
            The layers that are left to the plain form.
        """
        if not self.wanted(section.device.type) or section.device.type == "meta":  # where operators are counted
            return layers
        values = statistics if options.batch else section.values
        taken = self._taken(section, layers, values, scales, options)
        if taken != self.layers:  # these have changed, or there are layers on other devices too
            self.layers = (*(layer for layer in self.layers if layer not in section.members), *taken)
        return [layer for layer in layers if layer not in taken] if len(taken) < len(layers) else ()

    def _taken(
        self,
        section: Section,
        layers: Sequence[Layer],
        values: Tensor,
        scales: Mapping[Layer, float | Tensor],
        options: Hyperparameters,
    ) -> tuple[Layer, ...]:
        """Steps 3 to 5 of the layers that are given back."""
        if torch.compiler.is_compiling():  # the whole step is: what it takes in is nothing that stays
            fitting = tuple(layer for layer in layers if _fits(section, layer))
            inverse = [1.0 / scales[layer] if options.scale else 1.0 for layer in fitting]
            _layout(section, fitting, options).step(values, inverse, *_gradients(fitting))
            return fitting
        if self._gave_up or _get_current_dispatch_mode() is not None:  # it looks at operators; compiled code has none
            return ()
        key = section, options, torch.get_num_threads(), *map(_seen, layers)
        ready = self._ready.get(key)
        if ready is None:
            ready = self._prepared(section, layers, values, options)
            if ready is None:
                return ()
            self._ready[key] = ready
        call, taken = ready
        factors = self._factors(section, [scales[layer] if options.scale else 1.0 for layer in taken])
        call(values, factors, *_gradients(taken))
        return taken

    def _prepared(
        self, section: Section, layers: Sequence[Layer], values: Tensor, options: Hyperparameters
    ) -> tuple[Call, tuple[Layer, ...]] | None:
        """A function for gradients that lie as they do now, and the layers that it is of; None where there is none."""
        if _captures(section.device):
            return None
        if len(self._ready) == LAYOUTS:
            self.reason = f"more than {LAYOUTS} layouts of gradients: other layers have some in each step"
            return None
        fitting = tuple(layer for layer in layers if _fits(section, layer))
        if not fitting:
            return None
        try:
            call = compiled(_layout(section, fitting, options))
            trial = [tensor.clone() for tensor in (values, *_gradients(fitting))]  # what fails leaves gradients alone
            call(trial[0], torch.ones(len(fitting), device=section.device, dtype=values.dtype), *trial[1:])
        except Exception as error:
            self._gave_up = True
            self.reason = (
                f"it does not compile here ({type(error).__name__}: {str(error).strip().partition(chr(10))[0]})"
            )
            warnings.warn(
                f"BNP goes on in its plain form, for the fused one cannot be had: {self.reason}", stacklevel=8
            )
            return None
        return call, fitting

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


def _layout(section: Section, layers: Sequence[Layer], options: Hyperparameters) -> Layout:
    begins = dict(zip(section.layers, accumulate(section.sizes, initial=0), strict=False))
    gradients = []
    for layer in layers:
        weight = layer.weight.grad
        assert weight is not None
        lies = tuple(weight.shape), weight.stride()
        gradients.append(Gradient(begins[layer], layer.channels, layer.groups, *lies, layer.bias_grad is not None))
    return Layout(
        section.device,
        section.values.dtype,
        section.length,
        tuple(gradients),
        options.eps1,
        options.eps2,
        options.center,
        options.standardize,
        torch.get_num_threads(),
    )
