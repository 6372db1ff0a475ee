"""What a method is: the layers it puts into a network, what it does to gradients, what that costs, where it applies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from pydantic import Field

from bnpbench.fields import Kinded, Position
from bnpbench.methods.preconditioning import Preconditioning, Training
from bnpbench.sites import Misfit, Site, single_row

if TYPE_CHECKING:
    from torch import Tensor, nn


MARKERS = tuple("<>*d8HosvX^PpDh.")
"""Those of matplotlib's markers that every figure can draw, the first to be taken first."""


@dataclass(frozen=True)
class Ink:
    """How a method is drawn.

    Attributes:
        light: colour on white, ``#rrggbb``.
        dark: colour on a dark ground.
        marker: matplotlib's name of the marker.
    """

    light: str
    dark: str
    marker: str

    @classmethod
    def read(cls, entry: object) -> Ink | None:
        """What a ``suite.json`` holds of an ink; None where it holds none that can be drawn.

        Args:
            entry: JSON data, possibly of a stranger.

        Returns:
            An ink, or None.
        """
        told = entry if isinstance(entry, dict) else {}
        light, dark, marker = (str(told.get(name)) for name in ("light", "dark", "marker"))
        fine = all(re.fullmatch("#[0-9a-fA-F]{6}", colour) for colour in (light, dark)) and marker in MARKERS
        return cls(light, dark, marker) if fine else None


@dataclass(frozen=True)
class Decay:
    """An L2 penalty: half of ``value`` times the sum of the squared distances of ``parameters`` from ``center``."""

    value: float
    parameters: list[nn.Parameter]
    center: float = 0.0

    def __call__(self) -> Tensor:
        """The penalty, a 0-d tensor."""
        import torch

        away = torch.cat([parameter.flatten() for parameter in self.parameters]) - self.center
        return 0.5 * self.value * away.square().sum()


class Preconditioner(Protocol):
    """What changes the gradients of a model between the backward pass and the optimizer's step."""

    def precondition(self) -> None:
        """Rewrite ``.grad`` of the parameters in place; nothing is read back to the host."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """What it carries from step to step, kept in checkpoints."""

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Put such a state into the tensors that are there.

        Args:
            state: what ``state_dict`` gave.
        """


@dataclass(frozen=True)
class Published:
    """Operations that a method adds to one step; None where there is no answer.

    Attributes:
        predicted: by the formula of a publication.
        counted: by running its plain algorithm under a counter.
    """

    predicted: int | None = None
    counted: int | None = None


class MethodPlugin(Kinded):
    """A method: a normalization, a change of the gradients, a penalty, or several of these.

    A subclass defines what it does and leaves the rest: :meth:`layer`, :meth:`preconditioner` (or ``preconditioned``),
    :meth:`decays`, :meth:`finish`. One that defines none of them is a network without a method
    under another name, and is refused.

    Attributes:
        position: where a network puts the layers: a class variable or an option, ``"post"`` (behind the activation,
            where there is none) or ``"pre"``.
        preconditioned: whether BNP preconditions the gradients, by the class's options where it has BNP's
            (:class:`bnpbench.methods.preconditioning.Preconditioning`), else by BNP's defaults.
        sites: what a network of others has where its author normalizes: a class variable or an option, ``"keep"``
            (what its author put there) or, where there is none, the method's layers or nothing.
        one_device: it takes statistics of the whole batch, which none of several devices sees.
        ink: its colours and marker in figures; None: the next spare ones.
        baseline: its place among the methods that ratios are taken over, from 0; None: it is none of them.
        subject: whether it is the one that growing costs are set against the last of these, to find where they cross.
    """

    preconditioned: ClassVar[bool] = False
    one_device: ClassVar[bool] = False
    ink: ClassVar[Ink | None] = None
    baseline: ClassVar[int | None] = None
    subject: ClassVar[bool] = False
    label: str | None = Field(default=None, min_length=1, max_length=60)  # how tables call it; not a setting

    # --- what it does -------------------------------------------------------------------------

    def layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        """The module that normalizes where a network asks for one.

        Args:
            features: channels, or features of a row.
            spatial_dims: dimensions behind the channels: 0 for rows (N, features), 2 for images.
            site: name of the layer that it follows.

        Returns:
            A module from (N, features, *spatial) to the same shape.
        """
        raise NotImplementedError(f"{type(self).__name__} puts no layer into a network")

    def synchronized_layer(self, features: int, spatial_dims: int, site: str) -> nn.Module:
        """The same where several devices share a batch; by default :meth:`layer`'s, whose statistics are its own.

        Args:
            features, spatial_dims, site: as of :meth:`layer`.

        Returns:
            A module from (N, features, *spatial) to the same shape.
        """
        return self.layer(features, spatial_dims, site)

    def finish(self, model: nn.Module, input_shape: tuple[int, ...]) -> None:
        """Change the network once its weights are drawn, as how its layers take them; by default nothing.

        Args:
            model: the network with the method's layers, in place.
            input_shape: of one example, as the network reads it.

        Raises:
            NotApplicable: it has no layer that would be changed.
        """

    def decays(self, model: nn.Module) -> list[Decay]:
        """The penalties that are part of the method and join the loss.

        Args:
            model: the network with the method's layers.

        Returns:
            One for each strength and center; none by default.
        """
        return []

    def preconditioner(self, model: nn.Module, training: Training) -> Preconditioner | None:
        """What changes the gradients, if the method does.

        Args:
            model: the network with the method's layers, on its device.
            training: how it is trained.

        Returns:
            An object whose ``precondition`` runs after every backward pass; None: gradients stay as they are.

        Raises:
            NotApplicable: no layer of the model is left to it.
        """
        if not self.preconditioned:
            return None
        return (self if isinstance(self, Preconditioning) else Preconditioning()).bnp(model, training)

    # --- what it costs ------------------------------------------------------------------------

    def published(self, model: nn.Module, batch: Tensor) -> Published:
        """Operations of one step by a published formula and by its plain algorithm.

        Args:
            model: the network with the method's layers, on the ``meta`` device.
            batch: one batch of input, on ``meta``.

        Returns:
            Both numbers of operations, None where there is no answer.
        """
        return Published()

    # --- where it applies ---------------------------------------------------------------------

    def refuses(self, training: Training) -> Misfit | None:
        """Why it cannot be trained so, on these devices and in this precision; None where it can.

        Args:
            training: how a cell would be trained.

        Returns:
            What is wrong, and by which option, if by one.
        """
        if self.one_device and training.devices > 1:
            return Misfit(f"{self.kind} takes its statistics from the whole batch, which no device sees whole")
        return None

    def undivided(self, layer: str, features: int) -> Misfit | None:
        """Why so many features behind ``layer`` cannot be grouped as its options ask; None where they can.

        Args:
            layer: what the layer follows, as the network calls it.
            features: channels, or features of a row.

        Returns:
            What is wrong, and by which option.
        """
        return None

    def smallest_set(self, site: Site, examples: int) -> int | None:
        """Values in the smallest set that is normalized together at ``site``; None where one of them is no fault.

        Args:
            site: where.
            examples: that share statistics.

        Returns:
            A number of values.
        """
        return None

    def lone_value(self, where: str, features: int, examples: int) -> str:
        """What is wrong where :meth:`smallest_set` is 1: by default, that a batch's statistics are its one row.

        Args:
            where: names the layer.
            features: that are normalized there.
            examples: that share statistics.

        Returns:
            A sentence without a full stop.
        """
        return single_row(where, features, examples)

    # --- what follows from these ----------------------------------------------------------------

    @property
    def stands(self) -> Position:
        """Where a network puts the layers."""
        position: Position = getattr(self, "position", "post")
        return position

    @property
    def native(self) -> bool:
        """Whether a network of others keeps the normalizations that its author gave it."""
        return getattr(self, "sites", "none") == "keep"

    @classmethod
    def normalizes(cls) -> bool:
        """Whether it puts layers where a network asks for a normalization."""
        return cls.layer is not MethodPlugin.layer

    @classmethod
    def preconditions(cls) -> bool:
        """Whether it changes gradients."""
        return cls.preconditioned or cls.preconditioner is not MethodPlugin.preconditioner

    @classmethod
    def does_nothing(cls) -> bool:
        """Whether it leaves a network and its training as they are."""
        changed = (getattr(cls, name) is not getattr(MethodPlugin, name) for name in ("decays", "finish"))
        return not (cls.normalizes() or cls.preconditions() or any(changed))

    @property
    def normalizes_input(self) -> bool:
        """Whether the network's input is normalized, too."""
        return bool(getattr(self, "input", False))

    @property
    def shares_statistics(self) -> bool:
        """Whether several devices with one batch take statistics of all of it."""
        return bool(getattr(self, "sync", True))
