"""What optimizers of the library pytorch-optimizer have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bnpbench.errors import SuiteError
from bnpbench.optimizers.base import OptimizerPlugin

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

LIBRARY = "pytorch-optimizer"


class LibraryOptimizer(OptimizerPlugin):
    """An optimizer of pytorch-optimizer, which runs eagerly: its steps count in Python, and differ from one another.

    Its ``version`` is filled in when a suite is loaded: what a name stands for may change with the library's.

    Attributes:
        library_name: of the class there.
        beside: other packages that it needs, each by the option that its version is filled in to.
    """

    traced: ClassVar[bool] = False
    library_name: ClassVar[str]
    beside: ClassVar[Mapping[str, str]] = {}
    version: str | None = None

    def options(self) -> dict[str, Any]:
        """What the class is given beside parameters, learning rate and weight decay."""
        raise NotImplementedError(f"{type(self).__name__} defines no options()")

    def make(
        self, parameters: Iterable[nn.Parameter], *, weight_decay: float, fused: bool, capturable: bool
    ) -> torch.optim.Optimizer:
        import pytorch_optimizer
        import torch

        made: torch.optim.Optimizer = getattr(pytorch_optimizer, self.library_name)(
            list(parameters), lr=self.lr, weight_decay=weight_decay, **self.options()
        )
        take = made.step

        def step(closure: None = None) -> None:
            """As it is; where a matrix cannot be decomposed, weights are no numbers after it: the loss shows it."""
            try:
                take(closure)
            except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
                made.state.clear()  # which may be half made
                with torch.no_grad():
                    for group in made.param_groups:
                        torch._foreach_mul_(group["params"], float("nan"))

        vars(made)["step"] = step
        return made

    def follow(self, optimizer: torch.optim.Optimizer, lr: Tensor) -> None:
        """Write the number before each step: some of the classes would multiply the tensor in place.

        It is read back from the device, which the host waits for, only when the tensor was written to.
        """
        seen, rate = -1, self.lr

        def read(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
            nonlocal seen, rate
            if lr._version != seen:
                seen, rate = lr._version, lr.item()
            for group in optimizer.param_groups:
                group["lr"] = rate

        optimizer.register_step_pre_hook(read)

    def pinned(self) -> Self:
        installed = {}
        for option, package in {**self.beside, "version": LIBRARY}.items():
            try:
                installed[option] = version(package)
            except PackageNotFoundError:
                raise SuiteError(
                    f"{self.kind} needs {package}, which is not installed: pip install 'bnpbench[optimizers]'"
                ) from None
            if (asked := getattr(self, option)) not in (None, installed[option]):
                raise SuiteError(f"{package} {installed[option]} is installed, and the suite is of {asked}")
        return self.model_copy(update=installed)
