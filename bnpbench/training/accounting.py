"""What a step of a cell costs in operations, found on ``meta`` tensors before anything runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from bnpbench import methods
from bnpbench.bnp import BNP
from bnpbench.bnp.costs import bn_flops, predicted, tracked_shapes
from bnpbench.measure.costs import Columns, Costs
from bnpbench.measure.flops import FlopCount, count_plain_bn, count_plain_bnp
from bnpbench.suite import Settings, Vanilla
from bnpbench.training.optimizers import build_optimizer
from bnpbench.training.step import Step

META = torch.device("meta")


def costs(settings: Settings, input_shape: tuple[int, ...], classes: int) -> Costs:
    """The costs of one step of a cell.

    Args:
        settings: of the cell.
        input_shape: of one example, as the network takes it.
        classes: outputs of the network.
    """
    model = _model(settings, input_shape, classes)
    reason = methods.not_applicable(model, input_shape, settings.batch_size)
    parameters = sum(p.numel() for p in model.parameters())
    twin = settings.model_copy(update={"method": Vanilla(kind="vanilla")})
    plain = _step(twin, _model(twin, input_shape, classes), input_shape, classes)
    products = _products(plain, settings.batch_size)
    if reason is not None:
        return Costs(Columns(parameters, products), reason)
    predicted_flops, counted = _published(settings, model, input_shape)
    step = _step(settings, model, input_shape, classes)
    with_method, operators = _executed(step, settings.batch_size)
    without, _ = _executed(plain, settings.batch_size)
    return Costs(
        Columns(parameters, products, predicted_flops, counted, with_method - without, operators, _form(step.bnp))
    )


def _form(bnp: BNP | None) -> str | None:
    if bnp is None:
        return None
    if not bnp.lean:
        return "plain"
    return "lean" if bnp.lean == bnp.layers else f"lean: {', '.join(bnp.lean)}"


def _model(settings: Settings, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    with META:
        return methods.build_model(settings, input_shape, classes, torch.Generator("cpu")).train()


def _step(settings: Settings, model: nn.Module, input_shape: tuple[int, ...], classes: int) -> Step:
    """A step on as many examples as a batch holds, all of it on ``meta``."""
    examples = settings.batch_size
    step = Step(
        model,
        torch.empty(examples, dtype=torch.int64, device=META),
        build_optimizer(settings, model),
        images=torch.empty(examples, *input_shape, device=META),
        bnp=methods.preconditioner(settings, model),
        penalty=methods.penalty(settings, model),
        augment=settings.augment != "none",
    )
    step(_index(examples))  # the first step also builds the optimizer's state
    return step


def _index(examples: int) -> Tensor:
    return torch.empty(examples, dtype=torch.int64, device=META)


def _products(step: Step, examples: int) -> int:
    """Operations of the matrix products and convolutions, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        step(_index(examples))
    return int(counter.get_total_flops())


def _executed(step: Step, examples: int) -> tuple[int, int]:
    """Operations, and the number of operators, of one step."""
    with FlopCount() as flops, _OperatorCount() as operators:
        step(_index(examples))
    return flops.total, operators.calls


class _OperatorCount(TorchDispatchMode):
    """Counts the aten operators that are dispatched."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def _published(settings: Settings, model: nn.Module, input_shape: tuple[int, ...]) -> tuple[int | None, int | None]:
    """Operations of the method by its published formula, and by counting its plain algorithm."""
    batch = torch.empty(settings.batch_size, *input_shape, device=META)
    match settings.method.kind:
        case "vanilla":
            return 0, 0
        case "bnp":
            bnp = methods.preconditioner(settings, model)
            assert bnp is not None
            shapes = tracked_shapes(bnp, model, batch)
            bnp.remove()
            return sum(map(predicted, shapes)), sum(map(count_plain_bnp, shapes))
        case "bn" | "bn-pre":
            sizes = _batch_norm_sizes(model, batch)
            return sum(bn_flops(n, rows) for n, rows in sizes), sum(count_plain_bn(n, rows) for n, rows in sizes)
        case _:
            return None, None


def _batch_norm_sizes(model: nn.Module, batch: Tensor) -> list[tuple[int, int]]:
    """Features and rows of each batch normalization in one pass."""
    sizes: list[tuple[int, int]] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        features = inputs[0].shape[1]
        sizes.append((features, inputs[0].numel() // features))

    layers = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    with torch.no_grad():
        model(batch)
    for hook in hooks:
        hook.remove()
    return sizes
