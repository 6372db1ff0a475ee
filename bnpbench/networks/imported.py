"""A network that a function of a user's makes."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from bnpbench.errors import SuiteError
from bnpbench.fields import Keywords
from bnpbench.networks.made import MadeNetwork

if TYPE_CHECKING:
    from torch import nn

_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
TARGET = f"^{_NAME}:{_NAME}$"


_ADMITTED: set[str] = set()
"""The modules that networks may be imported from in this process."""


def admit(modules: Iterable[str]) -> None:
    """Let networks be imported from these modules: whoever loads a suite was allowed to, and hashed them."""
    _ADMITTED.update(modules)


def admitted(module: str) -> bool:
    """Whether networks may be imported from a module."""
    return module in _ADMITTED


class Imported(MadeNetwork):
    """The network that a function makes: ``target = "package.module:factory"``.

    The function is called with ``options``. Where it has a parameter called ``classes`` or ``num_classes``, that gets
    the number of classes; one called ``input_shape`` gets the shape of an example; unless ``options`` give it.
    """

    named_by: ClassVar[str] = "target"
    kind: Literal["import"]
    target: Annotated[str, Field(pattern=TARGET)]
    options: Keywords = Keywords()

    @property
    def module(self) -> str:
        """The dotted name of what is imported."""
        return self.target.partition(":")[0]

    def native(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        path = self.target.partition(":")[2]
        if not admitted(self.module):
            told = f"{self.target}: nobody allowed that {self.module!r} is run; load a suite that names it"
            raise SuiteError(told, key=self.key())
        try:
            factory: Any = importlib.import_module(self.module)
            for part in path.split("."):
                factory = getattr(factory, part)
        except (ImportError, AttributeError) as error:
            raise SuiteError(f"{self.target!r}: {type(error).__name__}: {error}", key=self.key()) from error
        known = {"classes": classes, "num_classes": classes, "input_shape": input_shape}
        asked = {name: known[name] for name in inspect.signature(factory).parameters if name in known}
        model = factory(**{**asked, **self.options})
        if not isinstance(model, nn.Module):
            told = f"{self.target!r} gives a {type(model).__name__}, not a torch.nn.Module: return the network"
            raise SuiteError(told, key=self.key())
        return model
