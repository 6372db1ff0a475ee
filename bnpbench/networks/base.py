"""What a network is: its module, the places where it asks for a normalization, and the examples that it reads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self

from bnpbench.errors import SuiteError
from bnpbench.fields import Kinded, Position
from bnpbench.sites import Normalization, Site

if TYPE_CHECKING:
    from torch import nn


class NetworkPlugin(Kinded):
    """A network.

    Attributes:
        images: whether it reads images (channels, height, width): True, False where it reads rows of features, None
            where it takes both.
        tokens: whether it reads sequences of tokens and says at each position which one follows: logits
            (N, classes, length).
        of_others: whether others made it, with normalizations and weights of its own
            (:class:`bnpbench.networks.made.MadeNetwork`).
    """

    images: ClassVar[bool | None] = None
    tokens: ClassVar[bool] = False
    of_others: ClassVar[bool] = False

    def build(self, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """A module from (N, *input_shape) to (N, classes).

        Args:
            normalization: ``normalization.make(features, spatial_dims, site)`` gives the method's module, the identity
                for methods without one. Ask once for each place, by a ``site`` of its own such as ``"hidden1"``: behind
                the activation of that layer where ``normalization.position`` is ``"post"``, before it where it is
                ``"pre"``. It does not look where it is put: asked for at both, each layer would have two.
            input_shape: of one example, as :meth:`reads` gives it.
            classes: outputs.

        Returns:
            The module, with any initial weights: they are drawn afterwards.

        Raises:
            NotApplicable: the method does not fit a layer.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no build()")

    def reads(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one example as the network reads it; by default the data set's.

        Args:
            input_shape: of one example, as the data set has it.

        Returns:
            The same number of values.
        """
        return tuple(input_shape)

    def sites(self, input_shape: tuple[int, ...], position: Position) -> Iterator[Site] | None:
        """Where it asks for a normalization, in the order of building; None where only building tells.

        Args:
            input_shape: of one example, as the network reads it.
            position: where the method puts its layers.

        Returns:
            The places, by the names that :meth:`build` gives them.
        """
        return None

    def unreadable(self, input_shape: tuple[int, ...]) -> str | None:
        """Why it cannot read such examples, in words that go on from its kind; None where it can.

        Args:
            input_shape: of one example, as the data set has it.

        Returns:
            Words, or None.
        """
        if self.images and len(input_shape) != 3:
            return "needs images (channels x height x width)"
        return None

    def pinned(self) -> Self:
        """The same, with what tells it apart from one that its options alone do not: it is part of a cell's key.

        Raises:
            SuiteError: what its options say of that is not so here.
        """
        return self

    def fetch(self, *, offline: bool = False) -> None:
        """Bring what it needs and is not on this machine, unless it is there; by default nothing. Announced.

        Args:
            offline: download nothing.

        Raises:
            DataError: it cannot be brought.
        """

    def built(self, normalization: Normalization, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """:meth:`build`, with a normalization of the input before it where the method asks for one.

        That layer is called ``input_norm``; the others keep their names in a sequential network, and stand under
        ``network`` in any other.

        Args:
            normalization, classes: as of :meth:`build`.
            input_shape: of one example, as the data set has it.

        Returns:
            A module from (N, ...) of the shape that :meth:`reads` gives to (N, classes).

        Raises:
            SuiteError: it cannot read the examples, or asks twice for one place.
        """
        from torch import nn

        if (fault := self.unreadable(input_shape)) is not None:
            size = " x ".join(map(str, input_shape))
            raise SuiteError(f"{self.kind} {fault}; the data set's examples are {size}")
        asked = set[str]()

        def once(features: int, spatial_dims: int, site: str) -> nn.Module:
            if site in asked:
                raise SuiteError(
                    f"{type(self).__name__}.build: the normalization of {site!r} was asked for twice: once for each "
                    "place, at normalization.position, by a name of its own"
                )
            asked.add(site)
            return normalization.make(features, spatial_dims, site)

        shape = self.reads(input_shape)
        network: nn.Module = self.build(replace(normalization, maker=once), shape, classes)
        if not normalization.input:
            return network
        features, *positions = shape
        first = normalization.make(features, len(positions), INPUT)
        layers = network.named_children() if isinstance(network, nn.Sequential) else [("network", network)]
        return nn.Sequential(OrderedDict([("input_norm", first), *layers]))


INPUT = "the input"
"""The site of a normalization of the network's input."""
