"""timm's networks."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from bnpbench.errors import SuiteError
from bnpbench.fields import Keywords
from bnpbench.networks.made import MadeNetwork

if TYPE_CHECKING:
    from torch import nn

_SOURCES = frozenset({"url", "file", "state_dict", "hf_hub_id", "hf_hub_filename", "source", "custom_load"})
"""What of a ``pretrained_cfg`` says where weights are read from."""
_MISSING = "needs timm, which is not installed: pip install 'bnpbench[models]'"


_NO_FILES = (
    "weights are read from where timm has them alone, because a file of weights may hold code; load yours in a function "
    'of your own and name it as { kind = "import", target = "module:function" }'
)


class Timm(MadeNetwork):
    """A network of timm by its name there, such as ``vit_tiny_patch16_224``.

    ``options`` go to ``timm.create_model``, beside the numbers of classes and of the images' channels; a vision
    transformer takes ``img_size`` there. Weights come from where timm has them: reading a file of weights may run what
    stands in it, and a suite names no code without ``--allow-plugins``.
    """

    images: ClassVar[bool] = True
    kind: Literal["timm"]
    name: str
    options: Keywords = Keywords()

    @model_validator(mode="after")
    def _weights_of_timm(self) -> Self:
        for name in ("checkpoint_path", "cache_dir"):
            if name in self.options:
                raise ValueError(f"options.{name}: {_NO_FILES}")
        for name in ("pretrained_cfg", "pretrained_cfg_overlay"):
            told = self.options.get(name)
            if isinstance(told, dict) and (found := sorted(_SOURCES & told.keys())):
                raise ValueError(f"options.{name}.{found[0]}: {_NO_FILES}")
        return self

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
