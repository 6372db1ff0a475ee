"""timm's networks."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from bnpbench.errors import SuiteError
from bnpbench.networks.library import LibraryNetwork

if TYPE_CHECKING:
    from torch import nn

_SOURCES = frozenset({"url", "file", "state_dict", "hf_hub_id", "hf_hub_filename", "source", "custom_load"})
"""What of a ``pretrained_cfg`` says where weights are read from."""
_MISSING = "needs timm, which is not installed: pip install 'bnpbench[models]'"


_NO_FILES = (
    "weights are read from where timm has them alone, because a file of weights may hold code; load yours in a "
    'function of your own and name it as { kind = "import", target = "module:function" }'
)


class Timm(LibraryNetwork):
    """A network of timm by its name there, such as ``vit_tiny_patch16_224``.

    ``options`` go to ``timm.create_model``, beside the numbers of classes and of the images' channels; a vision
    transformer takes ``img_size`` there. Weights come from where timm has them: reading a file of weights may run what
    stands in it, and a suite names no code without ``--allow-plugins``.
    """

    library: ClassVar[str] = "timm"
    weights_option: ClassVar[str] = "pretrained"
    kind: Literal["timm"]

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

    def cached(self) -> Path | None:
        import timm
        from huggingface_hub import constants, try_to_load_from_cache
        from torch import hub

        tag = self.options.get("pretrained_cfg")
        known = timm.get_pretrained_cfg(f"{self.name}.{tag}" if isinstance(tag, str) else self.name)
        if known is None:
            return None
        if known.hf_hub_id:
            repository, _, revision = known.hf_hub_id.partition("@")
            for file in (known.hf_hub_filename, "model.safetensors", "pytorch_model.bin"):
                found = file and try_to_load_from_cache(repository, file, revision=revision or None)
                if isinstance(found, str):
                    return Path(found)
            return Path(constants.HF_HUB_CACHE, f"models--{repository.replace('/', '--')}", "snapshots", "none")
        url = known.url if isinstance(known.url, str) or known.url is None else known.url[0]
        return None if url is None else Path(hub.get_dir(), "checkpoints", Path(url).name)

    def download(self) -> None:
        import timm

        timm.create_model(self.name, pretrained=True, pretrained_cfg=self.options.get("pretrained_cfg"))

    def create(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        import timm

        options: dict[str, Any] = {"num_classes": classes, "in_chans": input_shape[0], **self.options}
        model: nn.Module = timm.create_model(self.name, **options)
        return model

    def native(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        try:
            import timm
        except ImportError as error:
            raise SuiteError(f"timm {_MISSING}", key=self.key()) from error

        if not timm.is_model(self.name.partition(".")[0]):
            near = get_close_matches(self.name, timm.list_models(), 1)
            told = f"timm has no network {self.name!r}"
            raise SuiteError(told, key=self.key(), closest=near[0] if near else None)
        return super().native(input_shape, classes)
