"""Where a network asks for a normalization, what it gets there, and why that may have no meaning. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bnpbench.fields import Position

if TYPE_CHECKING:
    from torch import nn

    Maker = Callable[[int, int, str], nn.Module]


@dataclass(frozen=True)
class Site:
    """A place where a network asks for a normalization.

    Attributes:
        layer: what it follows, as the network calls it.
        features: channels, or features of a row.
        positions: of one example's map; 1 for a row of features.
    """

    layer: str
    features: int
    positions: int = 1


@dataclass(frozen=True)
class Misfit:
    """Why a method has no meaning in a setting.

    Attributes:
        reason: in words.
        option: of the method, which does not fit the network; None where another value of no option would.
    """

    reason: str
    option: str | None = None


@dataclass(frozen=True)
class Normalization:
    """What a network asks for at each place where a normalization may stand.

    Attributes:
        position: ``"post"``: behind the activation (and the pooling), so that it normalizes the
            input of the next layer; ``"pre"``: between a layer and its activation; None: nowhere.
            Residual networks have their normalization at its standard place whatever the position.
        maker: makes the layer for ``features`` channels, ``spatial_dims`` dimensions behind them
            (0: rows of features) and ``site``, the name of the layer that it follows; None: nothing is put there.
        conv_bias: whether the convolutions of a residual network get a bias, which they lack under BN.
        input: whether one stands before the first layer, too.
        native: whether a network that its author made with normalizations keeps them as they are.
    """

    position: Position | None = None
    maker: Maker | None = None
    conv_bias: bool = True
    input: bool = False
    native: bool = False

    def make(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        """The normalization behind the layer ``site``.

        Args:
            features: channels, or features of a row.
            spatial_dims: dimensions behind the channels: 0 for rows (N, features), 2 for images.
            site: name of the layer that it follows; each place has its own.

        Returns:
            A module from (N, features, *spatial) to the same shape; the identity where the method has none.

        Raises:
            NotApplicable: an option of the method does not fit ``features``; names ``site``.
        """
        from torch import nn

        return nn.Identity() if self.maker is None else self.maker(features, spatial_dims, site)


def single_row(where: str, features: int, batch_size: int) -> str:
    """What is wrong with batch statistics of one row: they are the row itself."""
    return (
        f"batch normalization over a single row: {where} sees 1 row of {features} features at batch size {batch_size}"
    )


def single_value(where: str) -> str:
    """What is wrong with an example's own statistics of one value: it is replaced by a constant."""
    return f"normalization over a single value: {where} sees 1 value at a time, of which it leaves a constant"


def no_site(network: str, method: str, preconditioned: bool) -> str:
    """What is wrong with a normalization that a network does not ask for."""
    if preconditioned:
        return f"the network {network!r} asks for no normalization: {method!r} would be bnp under another name"
    return f"the network {network!r} asks for no normalization: {method!r} would be vanilla under another name"


def no_form_of_its_own(network: str, method: str) -> str:
    """What is wrong with leaving a network's normalizations as they are where it has none but a method's."""
    return (
        f"the network {network!r} is made with a method's normalizations and has none of its own: {method!r} keeps none"
    )


def nothing_to_precondition(network: str, method: str) -> str:
    """What is wrong with a preconditioner that no layer is left for."""
    return f"no layer of the network {network!r} is preconditioned: {method!r} would do nothing under its name"
