"""A network that a function of a user's makes."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from bnpbench.errors import SuiteError
from bnpbench.fields import Keywords
from bnpbench.networks.made import MadeNetwork

if TYPE_CHECKING:
    from torch import nn

_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"


_ADMITTED: set[str] = set()
"""The modules that networks may be imported from in this process."""


def admit(modules: Iterable[str]) -> None:
    """Let networks be imported from these modules: whoever loads a suite was allowed to, and hashed them."""
    _ADMITTED.update(modules)


class Imported(MadeNetwork):
    """The network that a function makes: ``target = "package.module:factory"``.

    The function is called with ``options``. Where it has a parameter called ``classes`` or ``num_classes``, that gets
    the number of classes; one called ``input_shape`` gets the shape of an example; unless ``options`` give it.
    """

    kind: Literal["import"]
    target: Annotated[str, Field(pattern=f"^{_NAME}:{_NAME}$")]
    options: Keywords = Keywords()

    @property
    def module(self) -> str:
        """The dotted name of what is imported."""
        return self.target.partition(":")[0]

    def native(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        path = self.target.partition(":")[2]
        if self.module not in _ADMITTED:
            raise SuiteError(f"{self.target}: nobody allowed that {self.module!r} is run; load a suite that names it")
        try:
            factory: Any = importlib.import_module(self.module)
            for part in path.split("."):
                factory = getattr(factory, part)
        except (ImportError, AttributeError) as error:
            raise SuiteError(f"{self.target}: {type(error).__name__}: {error}") from error
        known = {"classes": classes, "num_classes": classes, "input_shape": input_shape}
        asked = {name: known[name] for name in inspect.signature(factory).parameters if name in known}
        model = factory(**{**asked, **self.options})
        if not isinstance(model, nn.Module):
            raise SuiteError(f"{self.target} gives a {type(model).__name__}, not a torch.nn.Module")
        return model
