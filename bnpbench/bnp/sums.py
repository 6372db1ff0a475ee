"""What a transform sums over the rows of a step, and the pool that keeps it call by call."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as numbers
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from bnpbench.bnp.layer import Counts, Layer, without_autocast
from bnpbench.bnp.pool import Call, Pool, Pools, in_backward, is_recomputed
from bnpbench.errors import StatisticsError

State = dict[str, Tensor]
"""What a transform carries of a layer from step to step, by name: (groups, ...), or 0-d."""


@dataclass(frozen=True)
class Sums:
    """Of the rows of one layer in one step: of all calls, micro-batches and ranks.

    Attributes:
        inputs: what ``input_sums`` gave, added up.
        outputs: what ``output_sums`` gave, added up; None where the transform asks for no gradients, and where what a
            step would do is asked before there are any (:meth:`Rewriter.input_matrix`).
        counts: how many rows of the input, examples and rows of the output there were; where only the device knows,
            a tensor (3,).
        labels: how many labels the loss is a mean over: as many as examples, unless :meth:`Rewriter.look_back` was
            shown the logits, which may have a label for each token.
        unfolds: as of the transform.
    """

    inputs: Tensor
    outputs: Tensor | None
    counts: Counts | Tensor
    labels: float | Tensor
    unfolds: bool = True

    @property
    def rows(self) -> float | Tensor:
        """How many rows ``inputs`` is a sum over."""
        return self.counts[2 if self.unfolds else 0]

    @property
    def examples(self) -> float | Tensor:
        """N; of a dense layer its rows."""
        return self.counts[1]

    @property
    def positions(self) -> float | Tensor:
        """Output positions of an example; 1 of a dense layer."""
        return self.counts[2] / self.counts[1]


class Transform(Protocol):
    """What a preconditioner makes of a layer's rows and of its gradient.

    :class:`bnpbench.GradientPlugin` has all of this, with defaults. None of it may read a value to the host, and all of
    a state is changed in place, so that a step can be compiled or captured in a CUDA graph.

    Attributes:
        kind: its name, in messages.
        every: steps from one :meth:`refresh` to the next.
        gradients: whether it sums over the gradients at the layer's output, too.
        unfolds: whether the rows of a convolution are its patches (:meth:`Layer.patches`), else its input positions
            (:meth:`Layer.positions`), without ones.
        looks_back: whether further backward passes give the gradients at the output, in place of the step's own.
    """

    @property
    def kind(self) -> str: ...
    @property
    def every(self) -> int: ...
    @property
    def gradients(self) -> bool: ...
    @property
    def unfolds(self) -> bool: ...
    @property
    def looks_back(self) -> bool: ...

    def backwards(self, classes: int) -> int:
        """How many further backward passes there are.

        Args:
            classes: of the model's output.
        """

    def objective(self, output: Tensor, number: int, draw: Tensor) -> Tensor:
        """What the further backward pass of this number, from 0, differentiates.

        Args:
            output: of the model, (N, classes, ...); differentiable.
            number: of the pass.
            draw: 0-d int64, another one for every pass of every step and rank: for what is drawn at random.

        Returns:
            A *sum* over all labels, 0-d: what reaches the output of a layer are then the gradients of each label.
        """

    def start(self, layer: Layer) -> State:
        """What it carries at first; made on the layer's device, and cast to the precision of the statistics."""

    def input_sums(self, layer: Layer, state: State, rows: Tensor) -> Tensor:
        """What it sums over rows, which is additive: of two sets of rows together it is the sum of theirs.

        Args:
            layer: whose rows they are.
            state: of the layer; it does not change within a step.
            rows: (groups, R, columns), R from 0.

        Returns:
            A tensor of any shape, that of the rows' number apart.
        """

    def output_sums(self, layer: Layer, state: State, grads: Tensor) -> Tensor:
        """The same of the gradients at the rows of the output.

        Args:
            layer, state: as above.
            grads: (groups, R, outputs of a group), by the loss as the step differentiates it: the *mean* over the
                labels of all ranks and micro-batches; with ``backwards`` by :meth:`objective`.

        Returns:
            A tensor of any shape.
        """

    def fold(self, layer: Layer, state: State, sums: Sums) -> None:
        """Take the rows of a step into the running values, in place."""

    def refresh(self, layer: Layer, state: State) -> None:
        """Compute from the running values what is dear and serves the next ``every`` steps, in place.

        It follows :meth:`fold` in the first step that a layer has a part in, and in every ``every``-th from there.
        """

    def apply(self, layer: Layer, state: State, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Rewrite the gradient of a layer.

        Args:
            layer, state: as above.
            weight: G_w, (groups, outputs of a group, inputs of a group); may be overwritten.
            bias: G_b, (groups, outputs of a group, 1); None where the layer is not ``biased``; may be overwritten.

        Returns:
            The new G_w and G_b.
        """

    def input_matrix(self, layer: Layer, state: State) -> Tensor:
        """What multiplies [G_b | G_w] from the right, for condition numbers.

        Returns:
            (groups, columns, columns).
        """


@dataclass(frozen=True, eq=False)
class Look:
    """One look back: how many labels the loss of its forward pass has. All calls of that pass share it."""

    labels: int


class SumsCall(Call):
    """One call of a layer: what a transform sums over its rows, and over the gradients that reached its output."""

    __slots__ = ("inputs", "look", "outputs")
    pool: SumsPool

    def __init__(self, pool: SumsPool, inputs: Tensor, counts: Counts) -> None:
        super().__init__(pool, counts)
        self.inputs = inputs
        self.outputs: Tensor | None = None
        self.look: Look | None = None

    def look_back(self, grad: Tensor | None) -> None:
        """Take the gradient of a further backward pass at the output."""
        if grad is not None:
            self.outputs = _added(self.outputs, self.pool.output_sums(grad))


class SumsPool(Pool):
    """The sums of the calls of one layer.

    Args:
        layer: whose rows they are.
        pools: of all layers.
        transform: says what is summed.
        state: of the layer.
        ranks: how many ranks average their gradients.
    """

    calls: dict[SumsCall, Tensor | None]  # type: ignore[assignment]

    def __init__(self, layer: Layer, pools: Pools[Any], transform: Transform, state: State, ranks: int) -> None:
        super().__init__(layer, pools, 3)  # of compiled modules the counts; what goes with them is below
        self.transform, self.state, self.ranks = transform, state, ranks
        self.looks_back = transform.looks_back
        self._compiled: dict[str, Tensor] = {}
        self.number = next(_NUMBERS)
        _POOLS[self.number] = self
        # What stands for the output's gradient in compiled modules, where autograd nodes have no hooks.
        self.tap = layer.weight.new_zeros((), requires_grad=True) if transform.gradients else None

    # --- calls -----------------------------------------------------------------------------------

    def input_sums(self, inputs: Tensor) -> Tensor:
        """Of the rows of a call."""
        with without_autocast(inputs.device.type), torch.no_grad():
            rows = self.layer.patches(inputs) if self.transform.unfolds else self.layer.positions(inputs)
            return self.transform.input_sums(self.layer, self.state, rows.to(self.dtype))

    def output_sums(self, grad: Tensor) -> Tensor:
        """Of the gradients at the output of a call."""
        with without_autocast(grad.device.type), torch.no_grad():
            rows = self.layer.output_rows(grad).to(self.dtype)
            if self.ranks > 1 and not self.looks_back:
                rows = rows / self.ranks
            return self.transform.output_sums(self.layer, self.state, rows)

    @property
    def dtype(self) -> torch.dtype:
        """Of the statistics: float32, or float64 where the weight is."""
        return torch.promote_types(self.layer.weight.dtype, torch.float32)

    def call_of(self, inputs: Tensor, counts: Counts) -> SumsCall:
        return SumsCall(self, self.input_sums(inputs), counts)

    def of_gradient(self, grad: Tensor) -> Tensor | None:
        return self.output_sums(grad) if self.transform.gradients and not self.looks_back else None

    def expect(self, call: Call, source: Tensor, waits: bool) -> None:
        super().expect(call, source, waits)
        if self.transform.gradients and not in_backward():
            # Kept by the graph, so that it goes where the graph goes; an edge kept here would keep the graph alive.
            assert source.grad_fn is not None
            metadata: Any = source.grad_fn.metadata  # a dict, whatever torch's stubs say
            metadata.setdefault(_EXPECTED, {})[call] = source.output_nr

    def _join(self, calls: dict[Call, Tensor | None]) -> None:
        for call, outputs in calls.items():
            assert isinstance(call, SumsCall)
            if outputs is None:
                continue
            kept = self.calls.get(call)
            if kept is not None and call.outputs is not None:  # of a gradient that may have been dropped since
                call.outputs = call.outputs * kept.to(call.outputs.dtype)
            call.outputs = outputs if call.outputs is None else call.outputs + outputs
        super()._join(dict.fromkeys(calls))

    def count_compiled_labels(self, look: Look) -> None:
        """The calls inside compiled modules, if there are any, serve the loss of so many labels."""
        if self.tap is not None and self.has_compiled:
            self.add_compiled("labels", torch.full((), look.labels, dtype=self.dtype, device=self.tap.device))

    # --- compiled modules ------------------------------------------------------------------------

    def observe_compiled(self, inputs: Tensor, output: Tensor) -> Tensor | None:
        counts = self.layer.counts(inputs, output)
        if counts.rows == 0:
            return None
        add_inputs(self._compiled_sums, inputs.detach(), list(counts), self.number)
        if self.tap is None:
            return None
        tapped: Tensor = _Tap.apply(output, self.tap, self.number)
        return tapped

    def add_compiled(self, name: str, sums: Tensor) -> None:
        """Add to the sums of calls inside compiled modules."""
        known = self._compiled.get(name)
        self._compiled[name] = sums if known is None else known + sums

    # --- a step ----------------------------------------------------------------------------------

    def nothing(self) -> Sums:
        """Of no rows."""
        weight = self.layer.weight
        width = self.layer.columns if self.transform.unfolds else self.layer.channels // self.layer.groups
        none = weight.new_zeros((self.layer.groups, 0, width), dtype=self.dtype)
        inputs, outputs = self.transform.input_sums(self.layer, self.state, none), None
        if self.transform.gradients:
            none = none.new_zeros((self.layer.groups, 0, self.layer.outputs // self.layer.groups))
            outputs = self.transform.output_sums(self.layer, self.state, none)
        return Sums(inputs, outputs, Counts(0, 0, 0), 0, self.transform.unfolds)

    def pooled(self) -> Sums:
        """Of all calls."""
        counts: Counts | Tensor = Counts(0, 0, 0)
        labels: float | Tensor = 0
        looks = set[Look]()
        inputs: Tensor | None = None
        outputs: Tensor | None = None
        if self.on_device or self.has_compiled:
            counts = self._compiled_sums.to(self.dtype, copy=True)
            if "labels" not in self._compiled and self.has_compiled:
                self._demand_look_back()
            labels = self._compiled.get("labels", counts[1]).clone()
        for call, kept in self.calls.items():
            one = None if kept is None else kept.to(self.dtype)
            inputs, outputs = _added(inputs, call.inputs, one), _added(outputs, call.outputs, one)
            if call.look is None:
                self._demand_look_back()
                of_call = call.counts.examples
            else:
                of_call = 0 if call.look in looks else call.look.labels
                looks.add(call.look)
            labels = labels + (of_call if one is None else one * of_call)
            if isinstance(counts, Tensor):
                for total, count in zip(counts.unbind(), call.counts, strict=True):
                    total.add_(count if one is None else one * count)
            else:
                counts = Counts(*(total + count for total, count in zip(counts, call.counts, strict=True)))
        inputs, outputs = (_added(a, self._compiled.get(b)) for a, b in ((inputs, "inputs"), (outputs, "outputs")))
        if inputs is None or (outputs is None and self.transform.gradients):
            none = self.nothing()
            inputs, outputs = _added(none.inputs, inputs), _added(none.outputs, outputs)
        assert inputs is not None
        return Sums(inputs, outputs, counts, labels, self.transform.unfolds)

    def _demand_look_back(self) -> None:
        if self.looks_back:
            raise StatisticsError(
                f"layer {self.layer.name!r}: {self.pools.title} takes statistics of gradients from further backward "
                "passes: call look_back(output) after each forward pass, before its backward()"
            )

    def follow(self) -> None:
        super().follow()
        weight = self.layer.weight
        if self.tap is not None and self.tap.device != weight.device:
            self.tap = weight.new_zeros((), requires_grad=True)
        self._compiled = {name: sums.to(weight.device, self.dtype) for name, sums in self._compiled.items()}

    def empty(self) -> None:
        super().empty()
        if self.tap is not None:
            self.tap.grad = None
        self._compiled.clear()


_EXPECTED = "bnpbench.bnp.sums"  # in the metadata of an autograd node: the calls whose output it gave, with its number


def expected_below(output: Tensor) -> Iterator[tuple[SumsCall, GradientEdge]]:
    """The calls that an output depends on, of all trackers, each with where its gradient arrives.

    Those that are recomputed in a backward pass, or were made inside compiled modules, are not among them.
    """
    waiting = [output.grad_fn]
    seen = {None, *waiting}
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        metadata: Any = node.metadata
        for call, number in metadata.get(_EXPECTED, {}).items():
            yield call, GradientEdge(node, number)
        for further, _ in node.next_functions:  # in their order: what is traced has to be the same each time
            if further not in seen:
                seen.add(further)
                waiting.append(further)


def _added(total: Tensor | None, sums: Tensor | None, one: Tensor | None = None) -> Tensor | None:
    if sums is None:
        return total
    weighted = sums if one is None else sums * one
    return weighted if total is None else total + weighted


# --- inside compiled modules: operators of which the compiler sees only that something is added ------

_NUMBERS = numbers()
_POOLS: weakref.WeakValueDictionary[int, SumsPool] = weakref.WeakValueDictionary()


@torch.library.custom_op("bnpbench::add_inputs", mutates_args={"counts"})
def add_inputs(counts: Tensor, inputs: Tensor, more: list[int], number: int) -> None:
    """Add a call to the pool of this number, unless checkpointing runs it again."""
    pool = _POOLS.get(number)
    if pool is None or is_recomputed():
        return
    pool.add_compiled("inputs", pool.input_sums(inputs))
    for place, value in zip(counts.unbind(), more, strict=True):
        place.add_(value)


@add_inputs.register_fake
def _(counts: Tensor, inputs: Tensor, more: list[int], number: int) -> None:
    return None


@torch.library.custom_op("bnpbench::add_outputs", mutates_args=())
def add_outputs(grad: Tensor, number: int) -> Tensor:
    """Add the gradients at the output of a call to the pool of this number; what it gives is a zero."""
    pool = _POOLS.get(number)
    if pool is not None and pool.pools.looking_back == pool.looks_back:
        pool.add_compiled("outputs", pool.output_sums(grad))
    return grad.new_zeros(())


@add_outputs.register_fake
def _(grad: Tensor, number: int) -> Tensor:
    return grad.new_empty(())


class _Tap(torch.autograd.Function):
    """The output of a call; its gradient is shown to the pool of a number on the way."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, tap: Tensor, number: int) -> Tensor:
        ctx.number = number
        return output.clone()  # a view must not be changed in place, as ReLU may do

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return grad, add_outputs(grad, ctx.number), None
