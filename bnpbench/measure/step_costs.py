"""What a step of a cell costs, as columns of the results. No torch: they go from process to process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Columns:
    """Columns of the ``cells`` table that need no training; None where there is no answer.

    Attributes:
        parameters: trained numbers of the network.
        flops_model: matrix products and convolutions of one step of the network without the method.
        flops_method_predicted: by the published formula, where there is one.
        flops_method_counted: by running the plain algorithm under the counter, where there is one.
        flops_method_executed: an eager step with the method minus the same step without it.
        flops_method_products: of what is counted and executed, the matrix products of the network's own layers that
            only this method asks for: to train a scale and shift of the input takes the gradient of what the first
            layer reads.
            Where the method refreshes what it keeps every so many steps, both are means over these.
        flops_refresh: operations that a step with such a refresh does beyond those of one without.
        operators_per_step: aten operators that an eager step dispatches, with BNP in its plain form where it is fused;
            one without a refresh, where there are such. None, as the bytes, where the optimizer's steps differ from one
            another.
        bnp_form: how BNP is to be computed (``BNP.form``): ``plain``, or ``lean`` or ``fused`` and, where others are in
            the plain form, ``: <layers>``. The row of a cell that ran tells the form that did.
        bytes_per_step: least traffic with the memory: each parameter, gradient, moment of the optimizer and running
            statistic read once and written once; each tensor that the forward pass keeps for the backward one written
            once and read once; the batch read once. What caches save beyond that, and what operators read and write
            more than once, are not in it.
        method_state_bytes: what the preconditioner carries from step to step.
        sites: where a network of others has a normalization, a line each: name, class and size.
        sites_served: at how many of them stands a layer of the method, or the one that it leaves there.
        bnp_layers: that BNP, or another preconditioner, has in hand.
        bnp_parameters: numbers in their weights and biases.
        bnp_skipped: what else has weights, a line each: name and why it is left alone; not normalizations.
        optimizer_parts: the optimizers, a line each: name, parameters that it serves, and whether weight decay is
            coupled to the gradients or decoupled.
    """

    parameters: int | None = None
    flops_model: int | None = None
    flops_method_predicted: int | None = None
    flops_method_counted: int | None = None
    flops_method_executed: int | None = None
    flops_method_products: int | None = None
    flops_refresh: int | None = None
    operators_per_step: int | None = None
    bnp_form: str | None = None
    bytes_per_step: int | None = None
    method_state_bytes: int | None = None
    sites: str | None = None
    sites_served: int | None = None
    bnp_layers: int | None = None
    bnp_parameters: int | None = None
    bnp_skipped: str | None = None
    optimizer_parts: str | None = None


@dataclass(frozen=True)
class Costs:
    """Columns of a cell.

    Attributes:
        columns: all None where they could not be found.
        not_applicable: why the method has no meaning there, if it has none.
        uncounted: the error in which a step on ``meta`` tensors ended, if it did.
    """

    columns: Columns
    not_applicable: str | None = None
    uncounted: str | None = None
