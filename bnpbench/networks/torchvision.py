"""torchvision's classification networks."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from bnpbench.errors import SuiteError
from bnpbench.networks.library import LibraryNetwork

if TYPE_CHECKING:
    from torch import nn

_RESNETS = re.compile("(wide_)?res(net|next).*")
_CHANNELS = 3
_AUXILIARY = ("googlenet", "inception_v3")
"""Those that in training give the logits of further classifiers too, unless told not to."""


class Torchvision(LibraryNetwork):
    """A classification network of torchvision by its name there, such as ``resnet18``.

    ``options`` go to its builder, beside the number of classes. ``stem = "cifar"`` begins a ResNet with a 3 x 3
    convolution of stride 1 and no pooling, for images of 32 x 32 pixels. Auxiliary classifiers are left out.
    """

    library: ClassVar[str] = "torchvision"
    weights_option: ClassVar[str] = "weights"
    kind: Literal["torchvision"]
    stem: Literal["cifar"] | None = None

    @model_validator(mode="after")
    def _stem_of_a_resnet(self) -> Self:
        if self.stem is not None and not _RESNETS.fullmatch(self.name):
            raise ValueError(f'stem = "{self.stem}" is of ResNets only, and {self.name} is none')
        return self

    @model_validator(mode="after")
    def _one_output(self) -> Self:
        if self.name in _AUXILIARY and self.options.get("aux_logits"):
            raise ValueError(
                f"options.aux_logits: {self.name} would give several outputs, and the loss is of one; leave it out, or "
                "write options = { aux_logits = false }"
            )
        return self

    def unreadable(self, input_shape: tuple[int, ...]) -> str | None:
        if (fault := super().unreadable(input_shape)) is not None:
            return fault
        return f"reads images of {_CHANNELS} channels" if input_shape[0] != _CHANNELS else None

    def _weights(self) -> Any:
        """torchvision's entry of the weights that its options ask for. Raises KeyError, and what torchvision raises."""
        from torchvision import models

        known: Any = models.get_model_weights(self.name)
        return known[str(self.options["weights"]).replace(f"{known.__name__}.", "")]  # as its builders read it

    def cached(self) -> Path | None:
        from torch import hub

        return Path(hub.get_dir(), "checkpoints", Path(self._weights().url).name)

    def download(self) -> None:
        self._weights().get_state_dict(progress=False, check_hash=True)

    def create(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn
        from torchvision import models

        known = models.list_models(module=models)
        if self.name not in known:
            near = get_close_matches(self.name, known, 1)
            told = f"torchvision has no classification network {self.name!r}"
            raise SuiteError(told, key=self.key(), closest=near[0] if near else None)
        options: dict[str, Any] = {"weights": None, "num_classes": classes, **self.options}
        if self.name in _AUXILIARY:
            options["aux_logits"] = False
        model: nn.Module = models.get_model(self.name, **options)
        if self.stem == "cifar":
            assert isinstance(model, models.ResNet)
            model.conv1 = nn.Conv2d(_CHANNELS, 64, 3, padding=1, bias=False)
            nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")  # as torchvision does
            model.maxpool = nn.Identity()
        return model
