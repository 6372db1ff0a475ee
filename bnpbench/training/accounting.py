"""What a step of a cell costs in operations, found on ``meta`` tensors before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from bnpbench.bnp import BNP
from bnpbench.bnp.algorithms import at_least_float32
from bnpbench.bnp.rewriter import Rewriter
from bnpbench.bnp.tracker import Tracker
from bnpbench.errors import NotApplicable
from bnpbench.fields import AUTOCAST
from bnpbench.layers import normalizes, places
from bnpbench.measure.flops import PRODUCTS, FlopCount
from bnpbench.measure.step_costs import Columns, Costs
from bnpbench.methods.base import Preconditioner, Published
from bnpbench.methods.vanilla import Vanilla
from bnpbench.optimizers.sgd import Sgd
from bnpbench.sites import Normalization
from bnpbench.suite import Settings
from bnpbench.training import models
from bnpbench.training.clipping import clipping
from bnpbench.training.examples import blank
from bnpbench.training.parallel import Group
from bnpbench.training.step import Step, autocast

META = torch.device("meta")
_VANILLA = Vanilla.made()


def costs(settings: Settings, input_shape: tuple[int, ...], classes: int) -> Costs:
    """The costs of one step of a cell, of all its devices together; what they tell each other counts nothing.

    Args:
        settings: of the cell.
        input_shape: of one example, as the network takes it.
        classes: outputs of the network.
    """
    sites = _sites(settings, input_shape, classes)
    told = Columns(sites=None if sites is None else "\n".join(sites))
    try:
        model = _model(settings, input_shape, classes)
    except NotApplicable as error:
        return Costs(replace(told, sites_served=error.served), str(error))
    if sites is not None:
        told = replace(told, sites_served=len(sites) if settings.method.native or settings.method.normalizes() else 0)
    shares = _shares(settings)
    reason = models.not_applicable(model, input_shape, settings.pooled_examples, settings.divided, classes)
    told = replace(told, parameters=sum(p.numel() for p in model.parameters()))
    try:
        models.build_optimizer(settings, model)
    except NotApplicable as error:
        return Costs(told, reason or str(error))
    told = replace(told, optimizer_parts=_parts(settings, model))
    try:
        products, updates, without = _plain(settings.model_copy(update={"method": _VANILLA}), input_shape, classes)
    except NotApplicable as error:  # a network of others whose normalizations cannot be taken out
        return Costs(told, reason, uncounted=f"without its normalizations: {error}")
    told = replace(told, flops_model=products - updates)
    if reason is not None:
        return Costs(told, reason)
    step = _step(settings, model, input_shape, classes, preconditioned=False)
    added = _products(step, settings.batch_size) - products
    batch, _ = blank(settings, settings.batch_size, input_shape, META)
    published = settings.method.published(model, batch) if settings.accumulate == 1 else Published()
    counted = None if published.counted is None else published.counted + added
    if settings.method.preconditions():
        step = _step(settings, model, input_shape, classes)
    with_method, refresh, operators = _by_turns(step, shares)
    kept, casts = _kept(settings, shares, input_shape, classes)
    traced = settings.optimizer.traced
    traffic = _bytes(step, shares) + 2 * kept
    return Costs(
        replace(
            told,
            flops_method_predicted=published.predicted,
            flops_method_counted=counted,
            flops_method_executed=with_method - without,
            flops_method_products=added,
            flops_refresh=refresh,
            operators_per_step=operators + casts if traced else None,
            bnp_form=step.bnp.form if isinstance(step.bnp, BNP) else None,
            bytes_per_step=traffic if traced else None,
            method_state_bytes=None if step.bnp is None else sum(map(_size, step.bnp.state_dict().values())),
            **_reach(step.bnp, model),
        )
    )


def _sites(settings: Settings, input_shape: tuple[int, ...], classes: int) -> list[str] | None:
    """Where a network of others has a normalization of its author's; None of one that is built with a method's."""
    if not settings.network.of_others:
        return None
    with META:
        made = settings.network.built(Normalization(native=True), input_shape, classes)
    return [str(place) for place in places(made)]


def _parts(settings: Settings, model: nn.Module) -> str:
    """Each optimizer with how many parameters it serves and what weight decay does, a line each."""
    decays = settings.optimizer.decays or "not told"
    parts = settings.optimizer.parts(model).items()
    return "\n".join(f"{name}: {sum(p.numel() for p in own)}, weight decay {decays}" for name, own in parts)


def _reach(bnp: Preconditioner | None, model: nn.Module) -> dict[str, Any]:
    """The columns that tell what is preconditioned, and what else has weights of two or more dimensions."""
    if not isinstance(bnp, Tracker):
        return {}
    modules = dict(model.named_modules())
    conditioned = [p for name in bnp.layers for p in modules[name].parameters(recurse=False)]
    left = [
        f"{name or 'the network itself'}: {reason}"
        for name, reason in bnp.skipped.items()
        if not normalizes(modules[name]) and any(p.dim() > 1 for p in modules[name].parameters(recurse=False))
    ]
    return {
        "bnp_layers": len(bnp.layers),
        "bnp_parameters": sum(p.numel() for p in conditioned),
        "bnp_skipped": "\n".join(left),
    }


def kept_bytes(settings: Settings, input_shape: tuple[int, ...], classes: int) -> int:
    """Bytes that the forward pass of a step keeps for the backward one, parameters apart; in bf16 fewer.

    Args:
        settings, input_shape, classes: as of ``costs``.
    """
    return _traced(settings, settings.batch_size // settings.accumulate, input_shape, classes, META)[0]


def _shares(settings: Settings) -> Counter[int]:
    """How many devices have so many examples of a batch."""
    groups = (Group(META, rank, settings.devices) for rank in range(settings.devices))
    return Counter(group.examples(settings.batch_size) for group in groups)


@lru_cache(maxsize=64)  # the methods of a sweep share it
def _plain(settings: Settings, input_shape: tuple[int, ...], classes: int) -> tuple[int, int, int]:
    """Operations of a step without a method: of its products, of those that are the optimizer's, and all."""
    step = _step(settings, _model(settings, input_shape, classes), input_shape, classes)
    updates = _counted(step.optimizer.step)
    return _products(step, settings.batch_size), updates, _executed(step, _shares(settings))[0]


def _model(settings: Settings, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    with META:
        return models.build_model(settings, input_shape, classes, torch.Generator("cpu")).train()


def _step(
    settings: Settings, model: nn.Module, input_shape: tuple[int, ...], classes: int, preconditioned: bool = True
) -> Step:
    """A step on as many examples as a batch holds, all on ``meta``; without the preconditioner if so asked.

    An optimizer whose steps differ from one another, and ask for numbers, is left to the simplest one.
    """
    examples = settings.batch_size
    if not settings.optimizer.traced:
        settings = settings.model_copy(update={"optimizer": Sgd.made(lr=settings.optimizer.lr)})
    images, labels = blank(settings, examples, input_shape, META)
    step = Step(
        model,
        labels,
        models.build_optimizer(settings, model),
        images=images,
        bnp=models.preconditioner(settings, model, input_shape) if preconditioned else None,
        loss=settings.loss.mean,
        penalty=models.penalty(settings, model),
        augment=settings.augment != "none",
        clip=clipping(settings, model),
        accumulate=settings.accumulate,
    )
    step(_index(examples))  # the first step also builds the optimizer's state
    return step


def _index(examples: int, device: torch.device | str = META) -> Tensor:
    return torch.empty(examples, dtype=torch.int64, device=device)


def _products(step: Step, examples: int) -> int:
    """Operations of the matrix products and convolutions of a step, the optimizer's among them."""
    return _counted(lambda: step(_index(examples)))


def _counted(work: Callable[[], object]) -> int:
    with FlopCounterMode(display=False, custom_mapping=PRODUCTS) as counter:
        work()
    return int(counter.get_total_flops())


def _executed(step: Step, shares: Counter[int]) -> tuple[int, int]:
    """Operations, and the number of operators, of one step: of all devices, so many of which have so many examples."""
    operations = calls = 0
    for examples, devices in shares.items():
        with FlopCount() as flops, _OperatorCount() as operators:
            step(_index(examples))
        operations, calls = operations + devices * flops.total, calls + devices * operators.calls
    return operations, calls


def _by_turns(step: Step, shares: Counter[int]) -> tuple[int, int | None, int]:
    """Operations of a step, the mean over those from one refresh to the next; what a refresh adds; and operators."""
    rewriter = step.bnp
    if not isinstance(rewriter, Rewriter):
        operations, calls = _executed(step, shares)
        return operations, None, calls
    found = {}
    for refresh in rewriter.turns:
        with rewriter.turn(refresh):
            found[refresh] = _executed(step, shares)
    more, (operations, calls) = found[True][0], found[rewriter.turns[-1]]
    if len(found) == 1:
        return operations, None, calls
    return operations + round((more - operations) / rewriter.transform.every), more - operations, calls


def _bytes(step: Step, shares: Counter[int]) -> int:
    """Bytes of what each device changes in a step, twice, and of the batch that they read."""
    assert step.images is not None
    tensors: list[Tensor] = [*step.parameters, *step.parameters]  # and their gradients
    tensors += [
        value for state in step.optimizer.state.values() for value in state.values() if isinstance(value, Tensor)
    ]
    tensors += step.model.buffers()
    tensors += step.bnp.state_dict().values() if step.bnp is not None else ()
    examples = sum(share * devices for share, devices in shares.items())
    return 2 * shares.total() * sum(map(_size, tensors)) + examples * _size(step.images[0])


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _kept(settings: Settings, shares: Counter[int], input_shape: tuple[int, ...], classes: int) -> tuple[int, int]:
    """Bytes that the forward pass keeps for the backward one, parameters apart, and the casts of autocast in both.

    Of all devices, so many of which have so many examples. Autocast passes over tensors of ``meta``: under it both are
    found on fake ones of the CPU. BNP keeps nothing.
    """
    kept = casts = 0
    for examples, devices in shares.items():
        examples, parts = examples // settings.accumulate, devices * settings.accumulate
        if settings.precision not in AUTOCAST:
            kept += parts * _traced(settings, examples, input_shape, classes, META)[0]
            continue
        cpu, plain = torch.device("cpu"), settings.model_copy(update={"precision": "float32"})
        with FakeTensorMode():
            of_one, operators = _traced(settings, examples, input_shape, classes, cpu)
            kept += parts * of_one
            casts += parts * (operators - _traced(plain, examples, input_shape, classes, cpu)[1])
    return kept, casts


def _traced(
    settings: Settings, examples: int, input_shape: tuple[int, ...], classes: int, device: torch.device
) -> tuple[int, int]:
    with device:
        model = models.build_model(settings, input_shape, classes, torch.Generator("cpu")).train()
        images, labels = blank(settings, examples, input_shape, device)
        own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        kept: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                kept[storage._cdata] = storage.nbytes()
            return tensor

        with _OperatorCount() as operators:
            with (
                torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor),
                autocast(settings, images.device),
            ):
                loss = settings.loss.mean(at_least_float32(model(images)), labels)
            loss.backward()
    return sum(kept.values()), operators.calls


class _OperatorCount(TorchDispatchMode):
    """Counts the aten operators that are dispatched."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.calls += func.namespace == "aten"  # fake tensors ask for their device by an operator of another
        return func(*args, **(kwargs or {}))
