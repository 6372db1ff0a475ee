"""An optimizer's step as a part of the fused form: the loop that preconditions a gradient updates the weight, too.

The formulas are those of torch's SGD, Adam and AdamW, on what the optimizer itself keeps, so that its state is what it
would be. Learning rates are arguments; the other options are constants, and a function is compiled anew for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any

import torch
import torch.optim.optimizer as everyone
from torch import Tensor

Place = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Shape, stride and dtype of a tensor."""

Spread = Callable[[Tensor], Tensor]
"""Of a 0-d tensor: what it is to be multiplied by the rows of a parameter as."""

_OPTIONS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.SGD: ("weight_decay", "momentum", "dampening", "nesterov"),
    torch.optim.Adam: ("weight_decay", "betas", "eps", "decoupled_weight_decay"),
    torch.optim.AdamW: ("weight_decay", "betas", "eps", "decoupled_weight_decay"),
}
"""What the formulas below go by, of the optimizers that they are of."""


@dataclass(frozen=True)
class Rule:
    """What is constant of the update of one parameter.

    Attributes:
        gradient: which of the step's gradients is its own.
        rate: which of the learning rates.
        options: of its group.
        names: of what the optimizer keeps of it.
    """

    gradient: int
    rate: int
    options: tuple[tuple[str, Any], ...]
    names: tuple[str, ...]

    def take(self, parameter: Tensor, rate: Tensor, state: Sequence[Tensor], grad: Tensor, spread: Spread) -> None:
        """Update a parameter, and what is kept of it, in place."""
        rule = _sgd if any(name == "momentum" for name, _ in self.options) else _adam
        rule(parameter, grad, rate, dict(zip(self.names, state, strict=True)), spread, **dict(self.options))


def _sgd(
    parameter: Tensor,
    grad: Tensor,
    rate: Tensor,
    state: dict[str, Tensor],
    spread: Spread,
    *,
    weight_decay: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
) -> None:
    if weight_decay:
        grad = grad + weight_decay * parameter
    if momentum:
        average = state["momentum_buffer"].mul_(momentum).add_(grad, alpha=1.0 - dampening)
        grad = grad + momentum * average if nesterov else average
    parameter.sub_(spread(rate) * grad)


def _adam(
    parameter: Tensor,
    grad: Tensor,
    rate: Tensor,
    state: dict[str, Tensor],
    spread: Spread,
    *,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
    decoupled_weight_decay: bool,
) -> None:
    step = state["step"].add_(1.0)
    if weight_decay and decoupled_weight_decay:
        parameter.mul_(1.0 - spread(rate * weight_decay))
    elif weight_decay:
        grad = grad + weight_decay * parameter
    mean = state["exp_avg"].lerp_(grad, 1.0 - betas[0])
    square = state["exp_avg_sq"].mul_(betas[1]).addcmul_(grad, grad, value=1.0 - betas[1])
    count = step.double()  # 1 - beta^t is small at first, and what is left of it in float32 would be less still
    size = (rate / (1.0 - betas[0] ** count)).to(parameter.dtype)
    inverse_root = (1.0 - betas[1] ** count).rsqrt().to(parameter.dtype)
    parameter.sub_(spread(size) * mean / (square.sqrt() * spread(inverse_root) + eps))


@dataclass(frozen=True)
class Update:
    """What is constant of an optimizer's step.

    Attributes:
        rules: of the parameters that are updated.
        rates: how many learning rates there are.
    """

    rules: tuple[Rule, ...]
    rates: int

    def of(self, tensors: Sequence[Tensor]) -> dict[int, Callable[[Tensor, Spread], None]]:
        """What updates a parameter by its gradient, which is given, by the number of that.

        Args:
            tensors: learning rates, parameters, and what the optimizer keeps of each of these.
        """
        remaining = iter(tensors)
        rates, parameters = ([next(remaining) for _ in range(count)] for count in (self.rates, len(self.rules)))
        return {
            rule.gradient: partial(rule.take, parameter, rates[rule.rate], [next(remaining) for _ in rule.names])
            for rule, parameter in zip(self.rules, parameters, strict=True)
        }


class Joined:
    """The step of an optimizer for the layers that are preconditioned, as arguments of the function that takes it.

    That of all other parameters is left to the optimizer, which on a GPU is one kernel for all of them.

    Args:
        optimizer: whose step it is, at learning rates that are tensors.
        gradients: of those layers, as tensors and not as copies.

    Attributes:
        update: what is constant of it.
        whole: whether nothing is left to the optimizer.
        tensors: learning rates, parameters, and what is kept of each of these.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, gradients: Sequence[Tensor]) -> None:
        self._optimizer, self.whole = optimizer, True
        numbers = {id(gradient): number for number, gradient in enumerate(gradients)}
        rules = list[Rule]()
        self._parameters = list[Tensor]()
        for number, group in enumerate(optimizer.param_groups):
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if id(parameter.grad) not in numbers:
                    self.whole = False
                    continue
                names = tuple(name for name, value in optimizer.state.get(parameter, {}).items() if value is not None)
                options = zip(_OPTIONS[type(optimizer)], _options(optimizer, group), strict=True)
                rules.append(Rule(numbers[id(parameter.grad)], number, tuple(options), names))
                self._parameters.append(parameter)

        self.update = Update(tuple(rules), len(optimizer.param_groups))
        self.tensors = self._found()
        self._places = [place(tensor) for tensor in self.tensors]

    def fits(self) -> bool:
        """Look for the tensors anew; whether they lie as the first ones did, for which a function was compiled."""
        found = self._found()
        if not all(map(is_, found, self.tensors)):
            if [place(tensor) for tensor in found] != self._places:
                return False
            self.tensors = found
        return True

    def _found(self) -> list[Tensor]:
        found = [group["lr"] for group in self._optimizer.param_groups] + self._parameters
        for parameter, rule in zip(self._parameters, self.update.rules, strict=True):
            if rule.names:
                state = self._optimizer.state[parameter]
                found += [state[name] for name in rule.names]
        return found

    def use_up(self) -> None:
        """The gradients were taken: the optimizer leaves parameters without one as they are."""
        for parameter in self._parameters:
            parameter.grad = None


def place(tensor: Tensor) -> Place:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def joins(optimizer: torch.optim.Optimizer, device: torch.device) -> bool:
    """Whether an optimizer's step can be taken: torch's own, that nothing watches, at rates that are tensors.

    On a GPU it is only SGD's: Adam counts the steps of each parameter in a tensor of its own, and the compiler would
    make a kernel of each count, where the optimizer has one for all parameters.
    """
    if type(optimizer) not in _OPTIONS or "step" in vars(optimizer):
        return False
    if device.type == "cuda" and type(optimizer) is not torch.optim.SGD:
        return False
    if everyone._global_optimizer_pre_hooks or everyone._global_optimizer_post_hooks:
        return False
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return False
    for group in optimizer.param_groups:
        rate = group["lr"]
        if not isinstance(rate, Tensor) or rate.device != device or group["maximize"] or group.get("amsgrad"):
            return False
    return True


def begun(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer has what it keeps of its parameters: its own first step makes that."""
    state = optimizer.state
    return all(
        one.grad is None or one in state
        for group in optimizer.param_groups
        if group.get("momentum", True)
        for one in group["params"]
    )


def seen_by(optimizer: torch.optim.Optimizer) -> list[object]:
    """What a function that takes an optimizer's step is compiled for, and that may change from step to step."""
    seen: list[object] = [optimizer]
    for group in optimizer.param_groups:
        seen += _options(optimizer, group)
        seen += [None if one.grad is None else (id(one), one.grad.stride()) for one in group["params"]]
    return seen


def _options(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> list[Any]:
    return [group[name] for name in _OPTIONS[type(optimizer)]]
