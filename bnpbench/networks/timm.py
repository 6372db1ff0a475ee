"""timm's networks."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bnpbench.errors import SuiteError
from bnpbench.fields import Keywords
from bnpbench.networks.made import MadeNetwork

if TYPE_CHECKING:
    from torch import nn

_MISSING = "needs timm, which is not installed: pip install 'bnpbench[models]'"


class Timm(MadeNetwork):
    """A network of timm by its name there, such as ``vit_tiny_patch16_224``.

    ``options`` go to ``timm.create_model``, beside the numbers of classes and of the images' channels; a vision
    transformer takes ``img_size`` there.
    """

    images: ClassVar[bool] = True
    kind: Literal["timm"]
    name: str
    options: Keywords = Keywords()

    def unreadable(self, input_shape: tuple[int, ...]) -> str | None:
        return super().unreadable(input_shape) or (None if find_spec("timm") else _MISSING)

    def native(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        try:
            import timm
        except ImportError as error:
            raise SuiteError(f"timm {_MISSING}") from error

        if not timm.is_model(self.name.partition(".")[0]):
            near = get_close_matches(self.name, timm.list_models(), 1)
            raise SuiteError(f"timm has no network {self.name!r}", closest=near[0] if near else None)
        options: dict[str, Any] = {"num_classes": classes, "in_chans": input_shape[0], **self.options}
        model: nn.Module = timm.create_model(self.name, **options)
        return model
