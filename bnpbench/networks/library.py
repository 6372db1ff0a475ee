"""What networks of an installed library have in common: a name there, a version, and weights that may be fetched."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from bnpbench.datasets.storage import is_offline, tell
from bnpbench.errors import DataError, SuiteError
from bnpbench.fields import Keywords
from bnpbench.networks.made import MadeNetwork

if TYPE_CHECKING:
    from torch import nn


class LibraryNetwork(MadeNetwork):
    """A network by its name in a library.

    Its ``version`` is filled in when a suite is loaded: what a name stands for may change with the library's.

    Attributes:
        library: the package.
        weights_option: which of ``options`` asks for weights.
    """

    images: ClassVar[bool] = True
    library: ClassVar[str]
    weights_option: ClassVar[str]
    name: str
    options: Keywords = Keywords()
    version: str | None = None

    def pinned(self) -> Self:
        try:
            installed = version(self.library)
        except PackageNotFoundError:
            return self
        if self.version not in (None, installed):
            raise SuiteError(f"{self.library} {installed} is installed, and the suite is of {self.version}")
        return self.model_copy(update={"version": installed})

    def weightless(self) -> Self:
        kept = {name: value for name, value in self.options.items() if name != self.weights_option}
        return self.model_copy(update={"options": Keywords(kept)})

    def cached(self) -> Path | None:
        """Where the weights that its options ask for lie, or will lie; None where they ask for none that are known.

        Raises:
            Exception: of any kind: the library knows no such weights.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no cached()")

    def download(self) -> None:
        """Bring its weights to where the library looks for them. Raises OSError and what the library raises."""
        raise NotImplementedError(f"{type(self).__name__} defines no download()")

    def fetch(self, *, offline: bool = False) -> None:
        if not self.options.get(self.weights_option):
            return
        try:
            place = self.cached()
        except Exception:  # making the network tells
            return
        if place is None or place.exists():
            return
        weights = f"the weights of {self.name}"
        if is_offline(offline):
            raise DataError(f"{weights} are not in {place} (offline: nothing is downloaded)")
        tell(f"fetching {weights} by {self.library} to {place.parent}")
        try:
            self.download()
        except Exception as error:  # of any kind: libraries have their own
            raise DataError(f"{weights} could not be downloaded to {place.parent} ({error})") from error

    def native(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        self.fetch()  # they may be gone, or this may be another machine than the one where the run began
        return self.create(input_shape, classes)

    def create(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """:meth:`native`, once its weights are there."""
        raise NotImplementedError(f"{type(self).__name__} defines no create()")
