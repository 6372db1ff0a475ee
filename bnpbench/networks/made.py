"""What networks of others have in common: they are made with normalizations and weights of their own."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, ClassVar, Self

from bnpbench.errors import BnpbenchError, SuiteError
from bnpbench.networks.base import NetworkPlugin
from bnpbench.sites import Normalization

if TYPE_CHECKING:
    from torch import nn


class MadeNetwork(NetworkPlugin):
    """A network that others made.

    A method that normalizes puts its layer where the author has one (:mod:`bnpbench.layers.swap`); one that does not
    leaves these places empty, unless it is ``native``. No bias is added anywhere. Its weights are trained as they are
    (``initialization = "keep"``) unless a suite asks for others.

    Attributes:
        named_by: which option says what is made.
    """

    of_others: ClassVar[bool] = True
    named_by: ClassVar[str] = "name"

    @classmethod
    def key(cls) -> str:
        """The setting that says what is made."""
        return f"network.{cls.named_by}"

    def native(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """The network as its author made it, from (N, *input_shape) to (N, classes).

        Args:
            input_shape: of one example.
            classes: outputs.

        Raises:
            SuiteError: there is no such network, or it cannot be made so.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no native()")

    def weightless(self) -> Self:
        """The same without weights that have to be fetched: all that is needed where values do not count."""
        return self

    def build(self, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        import torch

        try:
            model = self._made(input_shape, classes)
        except (BnpbenchError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # of any kind: it is code of others
            named = getattr(self, self.named_by)
            raise SuiteError(f"{named!r} raised {type(error).__name__}: {error}", key=self.key()) from error
        if normalization.native:
            return model
        from bnpbench.layers.swap import swapped

        return swapped(model, normalization, input_shape)

    def _made(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """:meth:`native`; one that cannot be made without data (on ``meta``) is made with them and then moved."""
        import torch

        if torch.get_default_device().type != "meta":
            return self.native(input_shape, classes)
        without = self.weightless()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that weights which are read have no place to go
            try:
                return without.native(input_shape, classes)
            except (NotImplementedError, RuntimeError):  # it looks at the values of its tensors
                with torch.device("cpu"), torch.random.fork_rng(devices=[]):
                    return without.native(input_shape, classes).to("meta")
