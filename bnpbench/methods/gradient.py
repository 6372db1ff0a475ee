"""What methods share that rewrite the gradients of layers by sums over the rows that pass through these."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from bnpbench.fields import Fraction, Positive, Sites
from bnpbench.methods.base import MethodPlugin, Published
from bnpbench.methods.preconditioning import Patterns, Training, left_alone, tell_left_alone
from bnpbench.sites import Misfit

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bnpbench.bnp.costs import LayerShape
    from bnpbench.bnp.layer import Layer
    from bnpbench.bnp.rewriter import Rewriter
    from bnpbench.bnp.sums import State, Sums


class GradientPlugin(MethodPlugin):
    """A preconditioner: sums over the rows of a layer in, another gradient out.

    A subclass says what is summed (:meth:`input_sums`, and :meth:`output_sums` of gradients), what is carried from step
    to step (:meth:`start`), how sums get there (:meth:`fold`), what is computed of it now and then (:meth:`refresh`),
    and what becomes of a gradient (:meth:`rewrite`). Rows, sums and states are tensors of one layer, on its device, in
    float32 or float64; nothing may be read back to the host. Hooks, micro-batches, ranks, checkpointing, compiled steps
    and checkpoints are the business of :class:`bnpbench.bnp.rewriter.Rewriter`.

    Rows of h^ = (1, h) and gradients [G_b | G_w] have ``layer.columns`` columns, the bias first; where no bias is
    trained (``layer.biased`` false) they have only those of h and G_w. A convolution is a dense layer that is applied
    to each patch of its input; each group of a grouped one is a layer of its own, along the first dimension.

    Attributes:
        gradients: whether :meth:`output_sums` is asked for.
        unfolds: whether a convolution's rows are patches; False: its input positions, by channels and without ones.
        every: steps from one :meth:`refresh` to the next.
        rho: weight of the past in running values; 0: those of the step alone.
        first_layer: whether the layer that reads the input is preconditioned.
        layers: patterns of names of layers, as of ``bnp``.
        sites: what a network of others has where its author normalizes: nothing, or what its author put there.
    """

    gradients: ClassVar[bool] = False
    unfolds: ClassVar[bool] = True
    every: Positive = 1
    rho: Fraction = 0.95
    first_layer: bool = True  # precondition the layer that reads the input
    layers: Patterns = ()  # patterns of names: "blocks.*", "!head"; absent: all
    sites: Sites = "none"  # where the author of a network of others normalizes; "keep": what its author put there

    # --- what a subclass defines ------------------------------------------------------------------

    def start(self, layer: Layer) -> State:
        """What it carries of a layer at first.

        Args:
            layer: with ``groups``, ``columns``, ``outputs`` (of all groups), ``biased``.

        Returns:
            Tensors by name, (groups, ...) or 0-d; made on the default device, which is the layer's. No name is "steps"
            or "draws", or has a dot.
        """
        return {}

    def input_sums(self, layer: Layer, state: State, rows: Tensor) -> Tensor:
        """What is summed over rows: additive, so that calls, micro-batches and ranks can be added up.

        Args:
            layer: whose rows they are.
            state: of the layer, that before this step.
            rows: (groups, R, columns), R from 0.

        Returns:
            A tensor of any shape that does not depend on R.
        """
        raise NotImplementedError(f"{type(self).__name__} sums nothing over rows")

    def output_sums(self, layer: Layer, state: State, grads: Tensor) -> Tensor:
        """What is summed over the gradients at the rows of the output.

        Args:
            layer, state: as of :meth:`input_sums`.
            grads: (groups, R, outputs of a group): of the loss, which is a mean over all labels; with ``backwards``
                of :meth:`objective`, which is a sum over them.

        Returns:
            A tensor of any shape that does not depend on R.
        """
        raise NotImplementedError(f"{type(self).__name__} sums nothing over gradients")

    def fold(self, layer: Layer, state: State, sums: Sums) -> None:
        """Take the sums of a step into the state, in place.

        Args:
            layer, state: as of :meth:`input_sums`.
            sums: ``inputs``, ``outputs``, and the numbers of ``rows``, ``examples`` and ``labels``, which can be 0-d
                tensors. ``outputs`` is None where :meth:`input_matrix` is asked what a step would do: leave what is of
                them.
        """
        raise NotImplementedError(f"{type(self).__name__} makes nothing of sums")

    def refresh(self, layer: Layer, state: State) -> None:
        """Compute what serves the next ``every`` steps, in place; behind :meth:`fold`.

        Args:
            layer, state: as of :meth:`input_sums`.
        """

    def rewrite(self, layer: Layer, state: State, gradient: Tensor) -> Tensor:
        """The gradient that takes the place of another.

        Args:
            layer, state: as of :meth:`input_sums`.
            gradient: [G_b | G_w], (groups, outputs of a group, columns).

        Returns:
            Of the same shape.
        """
        raise NotImplementedError(f"{type(self).__name__} makes nothing of a gradient")

    def apply(self, layer: Layer, state: State, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """:meth:`rewrite` of a gradient in two parts; to be defined instead where joining them costs too much.

        Args:
            layer, state: as of :meth:`input_sums`.
            weight: G_w, (groups, outputs of a group, inputs of a group); may be overwritten.
            bias: G_b, (groups, outputs of a group, 1), or None; may be overwritten.

        Returns:
            The new G_w and G_b.
        """
        import torch

        if bias is None:
            return self.rewrite(layer, state, weight), None
        gradient = self.rewrite(layer, state, torch.cat([bias, weight], 2))
        return gradient[..., 1:], gradient[..., :1]

    def input_matrix(self, layer: Layer, state: State) -> Tensor:
        """What multiplies [G_b | G_w] from the right, for condition numbers.

        By default what becomes of the identity, which is right where a row of the gradient is changed by itself.

        Args:
            layer, state: as of :meth:`input_sums`.

        Returns:
            (groups, columns, columns).
        """
        import torch

        some = next(iter(state.values()))
        eye = torch.eye(layer.columns, dtype=some.dtype, device=some.device).repeat(layer.groups, 1, 1)
        weight, bias = self.apply(
            layer,
            state,
            eye[..., layer.columns - layer.inputs :].clone(),
            eye[..., :1].clone() if layer.biased else None,
        )
        return weight if bias is None else torch.cat([bias, weight], 2)

    def backwards(self, classes: int) -> int:
        """How many further backward passes a step runs for :meth:`output_sums`, instead of taking its own.

        Args:
            classes: of the network. Whether there are any does not depend on that.

        Returns:
            The number of passes, each of which asks :meth:`objective`; 0 by default. Their time is the method's.
        """
        return 0

    @property
    def looks_back(self) -> bool:
        """Whether there are further backward passes."""
        return self.gradients and self.backwards(1) > 0

    def objective(self, output: Tensor, number: int, draw: Tensor) -> Tensor:
        """What the further backward pass of this number, from 0, differentiates.

        Args:
            output: logits, (N, classes, ...).
            number: of the pass.
            draw: 0-d int64, another one for every pass of every step and rank: for what is drawn at random.

        Returns:
            A sum over the labels, 0-d.
        """
        raise NotImplementedError(f"{type(self).__name__} has no further backward pass")

    def flops(self, shape: LayerShape) -> int | None:
        """Operations of a step on a layer by a formula, the mean over those from one refresh to the next.

        Args:
            shape: of the layer, and its rows.

        Returns:
            A number, without what :meth:`pass_flops` tells; None where there is no formula.
        """
        return None

    def pass_flops(self, shape: LayerShape) -> int:
        """Operations on the gradients at a layer's output that come with each further backward pass.

        Args:
            shape: of the layer, and its rows.

        Returns:
            A number; 0 by default.
        """
        return 0

    # --- what follows from that ---------------------------------------------------------------------

    def preconditioner(self, model: nn.Module, training: Training) -> Rewriter:
        """What runs it on a model.

        Args:
            model: the network with the method's layers, on its device.
            training: how it is trained.

        Returns:
            A rewriter with this as its transform.

        Raises:
            NotApplicable: no layer is left to it.
        """
        from bnpbench.bnp.rewriter import Rewriter

        left, once = left_alone(model, training, self.first_layer, self.layers)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that there is no layer, which is told below
            rewriter = Rewriter(
                model,
                self,
                layers=(lambda name, module: name not in left) if left else None,
                count="forward" if once else "backward",  # the training step takes every forward pass to a backward one
            )
        tell_left_alone(rewriter, left)
        return rewriter

    def published(self, model: nn.Module, batch: Tensor) -> Published:
        """:meth:`flops`, and what this class does with rows and gradients, counted; both with further backward passes.

        What a further backward pass of the network takes is no formula's, for nobody knows of all that has no weights,
        such as attention scores: its products of matrices and convolutions are counted for both.

        Args:
            model: on the ``meta`` device.
            batch: one batch of input, on ``meta``.

        Returns:
            Both numbers of operations, the first None where there is no formula.
        """
        from bnpbench.bnp.costs import tracked_shapes
        from bnpbench.measure.flops import FlopCount

        rewriter = self.preconditioner(model, Training(len(batch)))
        shapes = tracked_shapes(rewriter, model, batch)
        passes, further = 0, FlopCount()
        if self.looks_back:
            output = model(batch)
            passes = self.backwards(output.shape[1])
            with further:
                rewriter.look_back(output)
        rewriter.remove()
        predicted = [flops for shape in shapes if (flops := self.flops(shape)) is not None]
        each = sum(map(self.pass_flops, shapes)) + (_products_back(model, batch, rewriter.layers) if passes else 0)
        counted = sum(self._counted(model.get_submodule(shape.name), shape) for shape in shapes)
        whole = len(predicted) == len(shapes)
        return Published(sum(predicted) + passes * each if whole else None, counted + further.total)

    def _counted(self, module: nn.Module, shape: LayerShape) -> int:
        """Operations of a step on one layer, the mean over those from one refresh to the next."""
        import torch

        from bnpbench.bnp.layer import Counts, Layer
        from bnpbench.bnp.sums import Sums
        from bnpbench.measure.flops import FlopCount

        layer = Layer(shape.name, module)
        counts = Counts(shape.rows_in, shape.examples, shape.rows_out)
        with torch.device("meta"), torch.no_grad():
            state = self.start(layer)
            width = (counts.outputs, layer.columns) if self.unfolds else (counts.rows, layer.channels // layer.groups)
            rows = torch.empty(layer.groups, *width)
            outputs = layer.outputs // layer.groups
            weight = torch.empty(layer.groups, outputs, layer.inputs)
            bias = torch.empty(layer.groups, outputs, 1) if layer.biased else None
            grads = weight.new_empty(layer.groups, counts.outputs, outputs)
            with FlopCount() as own:
                sums = self.output_sums(layer, state, grads) if self.gradients else None
            with FlopCount() as step:
                inputs = self.input_sums(layer, state, rows)
                self.fold(layer, state, Sums(inputs, sums, counts, counts.examples, self.unfolds))
                self.apply(layer, state, weight, bias)
            with FlopCount() as refresh:
                self.refresh(layer, state)
        return step.total + round(refresh.total / self.every) + (0 if self.looks_back else own.total)

    def refuses(self, training: Training) -> Misfit | None:
        """Also where gradients at the outputs would be scaled with the loss, in fp16, or sites be taken twice.

        Args:
            training: how a cell would be trained.

        Returns:
            What is wrong, if anything.
        """
        if self.gradients and training.precision == "fp16":
            return Misfit(f"{self.kind} takes statistics of gradients, which fp16 scales with the loss")
        if self.native and self.normalizes():
            return Misfit(f"{self.kind} puts layers of its own where the network's normalizations would stay", "sites")
        return super().refuses(training)

    @classmethod
    def does_nothing(cls) -> bool:
        """Whether a subclass has left out what it makes of a gradient."""
        return cls.rewrite is GradientPlugin.rewrite and cls.apply is GradientPlugin.apply


def _products_back(model: nn.Module, batch: Tensor, layers: Iterable[str]) -> int:
    """Operations of the products that take gradients back to the outputs of layers, those of weights not among them.

    Args:
        model: on the ``meta`` device.
        batch: one batch of input, on ``meta``.
        layers: names in the model.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from bnpbench.measure.flops import PRODUCTS

    outputs: list[Tensor] = []
    handles = [
        model.get_submodule(name).register_forward_hook(lambda module, args, output: outputs.append(output))
        for name in layers
    ]
    with torch.enable_grad():
        total = model(batch).sum()
    for handle in handles:
        handle.remove()
    with FlopCounterMode(display=False, custom_mapping=PRODUCTS) as counter:
        torch.autograd.grad(total, outputs, allow_unused=True)
    return int(counter.get_total_flops())
