"""A network that a function of a user's makes."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from bnpbench.errors import SuiteError
from bnpbench.fields import Keywords
from bnpbench.networks.made import MadeNetwork

if TYPE_CHECKING:
    from torch import nn

_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"


class Imported(MadeNetwork):
    """The network that a function makes: ``target = "package.module:factory"``.

    The function is called with ``options``. Where it has a parameter called ``classes`` or ``num_classes``, that gets
    the number of classes; one called ``input_shape`` gets the shape of an example; unless ``options`` give it.
    """

    kind: Literal["import"]
    target: Annotated[str, Field(pattern=f"^{_NAME}:{_NAME}$")]
    options: Keywords = Keywords()

    def native(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        name, _, path = self.target.partition(":")
        try:
            factory: Any = importlib.import_module(name)
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
