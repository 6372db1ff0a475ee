"""Any preconditioner that is a transform of sums over a layer's rows: what runs it on a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bnpbench.bnp.algorithms import at_least_float32
from bnpbench.bnp.layer import Counts, Layer, without_autocast
from bnpbench.bnp.pool import Pools
from bnpbench.bnp.sums import Look, State, Sums, SumsPool, Transform, expected_below
from bnpbench.bnp.tracker import Tracker, refuse_gradients
from bnpbench.bnp.tracking import Predicate
from bnpbench.errors import StatisticsError

_STEPS, _DRAWS = "steps", "draws"  # what a state dict has beside what the transform carries
_DRAWS_OF_A_RANK = 2**40  # no training has so many passes


class Rewriter(Tracker[SumsPool]):
    """Rewrites the gradients of a model's Linear and Conv layers as a transform says.

    When rows count is told in :mod:`bnpbench.bnp.tracker`. A step folds the sums of each layer that has a gradient into
    its running values; in the first step of a layer, and in every ``transform.every``-th from there, the transform
    refreshes what it computes of them; then the gradient is rewritten. A layer whose weight has no gradient is left
    alone. Each group of a grouped convolution is a layer of its own. Statistics are kept in float32, or float64 where a
    weight is; they follow a model that is cast or moved. A NaN or an infinity is not filtered.

    Which layers have a refresh in a step is the host's decision; nothing is read back to it. So a step without a
    refresh and one with it can be compiled or captured, each by itself (:meth:`turn`), if what runs them tells
    :meth:`advance`.

    Gradients at the outputs are the loss's. Where a GradScaler scales that, a transform that sums over them sees them
    scaled.

    Args:
        model: any module.
        transform: what to do; for example ``Foof.made(damping=1e-3)`` of :mod:`bnpbench.methods.foof`.
        layers, process_group: as of :class:`bnpbench.bnp.tracker.Tracker`. The gradients at the outputs are divided by
            the number of ranks, whose average the gradient of the weights is.
        count: when a call counts, as of :class:`bnpbench.BNP`. With "forward", a transform that sums over gradients
            still waits for them.

    Attributes:
        transform: as given.

    Raises:
        ValueError: another tracker has one of the layers; the transform's state has a name that is taken.
    """

    def __init__(
        self,
        model: nn.Module,
        transform: Transform,
        *,
        layers: Predicate | None = None,
        process_group: dist.ProcessGroup | Literal[False] | None = None,
        count: Literal["backward", "forward"] = "backward",
    ) -> None:
        self.transform, self.title = transform, transform.kind
        super().__init__(model, layers, process_group)
        self._states: dict[Layer, State] = {layer: {} for layer in self._layers}
        self._place()
        self._steps = dict.fromkeys(self._layers, 0)  # how many each layer had a part in
        self._last: list[Layer] = []  # those that had a part in the step before
        self._turn: bool | None = None
        watched = count == "backward" or (transform.gradients and not transform.looks_back)
        group, ranks = process_group or None, 1
        self._draws = torch.zeros((), dtype=torch.int64) if transform.looks_back else None  # how many there were
        self._first_draw = 0
        if self._is_distributed():
            ranks, self._first_draw = dist.get_world_size(group), dist.get_rank(group) * _DRAWS_OF_A_RANK
        self._track(
            Pools(
                self._layers,
                lambda layer, pools: SumsPool(layer, pools, transform, self._states[layer], ranks),
                watched=watched,
                title=self.title,
            )
        )

    # --- refreshes ---------------------------------------------------------------------------

    @property
    def turns(self) -> tuple[bool, ...]:
        """The kinds of steps that there are: with a refresh (True) and without."""
        return (True,) if self.transform.every == 1 else (True, False)

    def refreshes(self, ahead: int = 0) -> bool:
        """Whether the next step has a refresh, or a later one; inside of :meth:`turn`, of which kind they all are.

        Of a layer that has had no part in any step, nobody knows when it will: its first step refreshes it, though this
        said False of that step. Such a step is timed as an ordinary one.

        Args:
            ahead: so many steps later than the next.

        Returns:
            True or False; the host knows.
        """
        if self._turn is not None:
            return self._turn
        every, begun = self.transform.every, {steps for steps in self._steps.values() if steps}
        return any((steps + ahead) % every == 0 for steps in begun or {0})

    @contextmanager
    def turn(self, refresh: bool) -> Iterator[None]:
        """Inside, all steps are of one kind, and are not counted.

        Args:
            refresh: whether they have a refresh.

        Returns:
            A context, which goes around making a program of a step.
        """
        before, self._turn = self._turn, refresh
        try:
            yield
        finally:
            self._turn = before

    def advance(self) -> None:
        """A step like the last one has run without this object, compiled or captured."""
        if self._turn is not None:
            return
        for layer in self._last:
            self._steps[layer] += 1

    # --- further backward passes ----------------------------------------------------------------

    def look_back(self, output: Tensor) -> None:
        """Run the transform's further backward passes, and count the labels that the loss is a mean over.

        To be called between a forward pass and its backward pass. Gradients stay as they are. A transform that sums
        over no gradients asks for nothing of this. The calls are those that ``output`` depends on and that were not
        looked back at before; forward passes that are never looked back at leave nothing behind.

        Args:
            output: of the model: logits, (N, classes, ...), one label for each N and each place of the further
                dimensions.
        """
        if not self.transform.gradients:
            return
        pools, classes = self._pools.of(self._layers), output.shape[1]
        look = Look(output.numel() // classes)
        own = dict.fromkeys(pools, False)  # whether it has one of the calls
        edges = {call: edge for call, edge in expected_below(output) if call.pool in own and call.look is None}
        for call in edges:
            call.look, own[call.pool] = look, True
        for pool, has_calls in own.items():
            if not has_calls:
                pool.count_compiled_labels(look)
        if self._draws is not None:
            taps = [pool.tap for pool in pools if pool.tap is not None]
            wanted: Any = [*edges.values(), *taps]  # torch knows lists of either
            self._draws = self._draws.to(output.device)
            self._pools.looking_back = True
            try:
                for number in range(self.transform.backwards(classes)):
                    with torch.enable_grad():
                        objective = self.transform.objective(
                            at_least_float32(output), number, self._draws + self._first_draw
                        )
                    found = torch.autograd.grad(objective, wanted, retain_graph=True, allow_unused=True)
                    for call, grad in zip(edges, found, strict=False):
                        call.look_back(grad)
                    self._draws.add_(1)
            finally:
                self._pools.looking_back = False

    # --- state -----------------------------------------------------------------------------------

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        for layer in self._states:
            self._steps[layer] = int(state[f"{_prefix(layer)}{_STEPS}"])

    def input_matrix(self, name: str, inputs: Tensor, group: int = 0) -> Tensor | None:
        """What the next step multiplies [G_b | G_w] of a group by, from the right, if these are its rows.

        Args:
            name: of the layer.
            inputs: that it is called with, of the group's channels alone.
            group: of a convolution.

        Returns:
            (columns, columns), in the inputs' precision and on their device. Nothing of this object is changed. Of
            gradients nothing is known here: ``outputs`` of the sums is None, and what the transform keeps of them is
            that of the steps before, while the next step would fold its own in first. None where it keeps any and the
            layer has had no part in a step: there is nothing yet to stand in.
        """
        layer = next(layer for layer in self._layers if layer.name == name)
        if self.transform.gradients and not self._steps[layer]:
            return None
        alone = copy(layer)
        alone.channels, alone.outputs, alone.groups = layer.channels // layer.groups, layer.outputs // layer.groups, 1
        state = {
            key: (value[group : group + 1] if value.dim() else value).detach().to(inputs, copy=True)
            for key, value in self._states[layer].items()
        }
        rows, positions = alone.patches(inputs), alone.positions(inputs)
        examples = len(inputs) if layer.spatial_dims else positions.shape[1]
        counts = Counts(positions.shape[1], examples, rows.shape[1])
        with torch.no_grad():
            sums = self.transform.input_sums(alone, state, rows if self.transform.unfolds else positions)
            labels = counts.examples
            self.transform.fold(alone, state, Sums(sums, None, counts, labels, self.transform.unfolds))
            if self._steps[layer] % self.transform.every == 0:
                self.transform.refresh(alone, state)
            return self.transform.input_matrix(alone, state)[0]

    def _values(self) -> dict[str, Tensor]:
        """``<layer>.<name>`` of each layer's state, ``<layer>.steps``, and ``draws`` where there are further passes."""
        values = {} if self._draws is None else {_DRAWS: self._draws}
        for layer, state in self._states.items():
            values.update({f"{_prefix(layer)}{name}": value for name, value in state.items()})
            values[f"{_prefix(layer)}{_STEPS}"] = torch.tensor(self._steps[layer])
        return values

    def _place(self) -> None:
        for layer, state in self._states.items():
            weight = layer.weight
            dtype = torch.promote_types(weight.dtype, torch.float32)
            if not state:
                with weight.device:
                    state.update(self.transform.start(layer))
                self._demand_names(state)
            for name, value in state.items():
                if value.is_meta and not weight.is_meta:  # it has no values to keep
                    with weight.device:
                        value = self.transform.start(layer)[name]
                state[name] = value.to(weight.device, dtype)

    def _demand_names(self, state: State) -> None:
        """Raises ValueError where a name in a transform's state would be another's in the state dict."""
        taken = [name for name in state if name in (_STEPS, _DRAWS) or "." in name]
        if taken:
            raise ValueError(
                f"{self.title}: start() names a tensor {taken[0]!r}, but {_STEPS!r} and {_DRAWS!r} are taken and a dot "
                "stands between layers: take another name"
            )

    # --- a step ----------------------------------------------------------------------------------

    def _apply(self, chosen: Sequence[SumsPool], active: list[SumsPool]) -> None:
        self._demand_biases(pool.layer for pool in active)
        sums = self._sums(chosen)
        without_rows = [pool for pool in active if not pool.has_rows and not _has_rows(sums.get(pool))]
        refuse_gradients(self.title, [pool.layer for pool in without_rows])
        active = [pool for pool in active if pool not in without_rows]
        folded = [pool for pool in chosen if pool in active or _has_rows(sums.get(pool))]
        self._last = [pool.layer for pool in folded]
        for pool in folded:
            layer, state = pool.layer, pool.state
            with without_autocast(layer.weight.device.type):
                fold(self.transform, layer, state, sums[pool] if pool in sums else pool.pooled())
                refreshes = self._steps[layer] % self.transform.every == 0 if self._turn is None else self._turn
                if refreshes:
                    self.transform.refresh(layer, state)
                if pool in active:
                    layer.put(*self.transform.apply(layer, state, *layer.gradients(pool.dtype)))
        self.advance()

    def _demand_biases(self, layers: Iterable[Layer]) -> None:
        """Raises StatisticsError where a bias is trained that was not when the shapes of sums and state were chosen."""
        later = [repr(layer.name) for layer in layers if not layer.biased and layer.bias_grad is not None]
        if later:
            raise StatisticsError(
                f"the bias of layer {', '.join(later)} is trained now, but was not when {self.title} was made, whose "
                f"matrices have no place for it: remove() it, and make {self.title} for the model as it is now"
            )

    def _sums(self, chosen: Sequence[SumsPool]) -> dict[SumsPool, Sums]:
        """Those of all ranks, of all layers; empty where this process is alone."""
        if not self._is_distributed():
            return {}
        found = {pool: pool.pooled() for pool in chosen}
        for device in dict.fromkeys(pool.layer.weight.device for pool in chosen):
            here = {pool: own for pool, own in found.items() if pool.layer.weight.device == device}
            for dtype in dict.fromkeys(pool.dtype for pool in here):
                self._add_up({pool: own for pool, own in here.items() if pool.dtype == dtype}, found)
        return found

    def _add_up(self, own: Mapping[SumsPool, Sums], found: dict[SumsPool, Sums]) -> None:
        """Add the sums of all ranks up; each rank takes part for each layer, whatever it has seen itself."""
        counts = torch.stack([_tensor((*sums.counts, sums.labels), sums.inputs) for sums in own.values()])
        parts = [part for sums in own.values() for part in (sums.inputs, sums.outputs) if part is not None]
        flat = torch.cat([part.flatten() for part in parts])
        for tensor in (flat, counts):
            dist.all_reduce(tensor, group=self.process_group or None)
        pieces = iter(flat.split([part.numel() for part in parts]))
        for (pool, sums), count in zip(own.items(), counts, strict=True):
            inputs = next(pieces).view(sums.inputs.shape)
            outputs = None if sums.outputs is None else next(pieces).view(sums.outputs.shape)
            count = count.to(flat.dtype)
            found[pool] = Sums(inputs, outputs, count[:3], count[3], sums.unfolds)


def fold(transform: Transform, layer: Layer, state: State, sums: Sums) -> None:
    """Fold sums in; where only the device knows whether there were any rows, it decides."""
    if not isinstance(sums.rows, Tensor):
        transform.fold(layer, state, sums)
        return
    before = {name: value.clone() for name, value in state.items()}
    transform.fold(layer, state, sums)
    for name, value in state.items():
        value.copy_(torch.where(sums.rows > 0, value, before[name]))


def _has_rows(sums: Sums | None) -> bool:
    """Whether any rank has rows. Reads the device."""
    return sums is not None and bool(sums.rows > 0)


def _tensor(counts: Iterable[float | Tensor], like: Tensor) -> Tensor:
    ones = [n.double() if isinstance(n, Tensor) else like.new_full((), n, dtype=torch.float64) for n in counts]
    return torch.stack(ones)


def _prefix(layer: Layer) -> str:
    return f"{layer.name}." if layer.name else ""
