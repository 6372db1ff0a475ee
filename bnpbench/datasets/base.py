"""What a data set is: its shape, its examples, and where they come from. No torch until they are read."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from bnpbench.errors import DataError, SuiteError
from bnpbench.fields import Kinded, Over

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from bnpbench.reading.splits import Data
    from bnpbench.reading.stream import Streams

    Tensors = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class DataShape:
    """What a data set is before anything is loaded.

    Attributes:
        input: shape of one example, channels first.
        classes: number of them.
        train, test: numbers of examples.
        tokens: whether an example is a sequence of tokens, whole numbers below ``classes``, and its label the token
            that follows at each position.
    """

    input: tuple[int, ...]
    classes: int
    train: int
    test: int
    tokens: bool = False


class DatasetPlugin(Kinded):
    """A data set. A subclass defines :meth:`describe` and :meth:`load`; the rest is for those that lie in files.

    Attributes:
        downloadable: whether :meth:`fetch` can bring it.
        streamed: whether it is too large to be resident and comes by :meth:`open` instead of :meth:`load`.
        source: where its examples are: ``made`` by its class or a package, in files of the ``data folder``, or where a
            suite says by a ``path``.
        imports: modules that take long to import and are needed to read it.
    """

    downloadable: ClassVar[bool] = False
    streamed: ClassVar[bool] = False
    source: ClassVar[Literal["made", "data folder", "path"]] = "made"
    imports: ClassVar[tuple[str, ...]] = ()

    def located(self, folder: Path) -> Self:
        """The same, as a suite in ``folder`` names it; one that lies where its options say looks there.

        Args:
            folder: of the suite.

        Returns:
            It or one like it.

        Raises:
            DataError: what its options name is not there, or not as it should be.
        """
        return self

    def describe(self) -> DataShape:
        """What is known of it before anything is loaded.

        Raises:
            SuiteError: the class says nothing of itself.
        """
        raise SuiteError(f"{type(self).__name__} defines no describe()")

    def load(self) -> Tensors:
        """Training examples (n, *shape) in float32 and labels (n,) in int64, then the same for the test.

        Tokens and their labels are both (n, length) in int64.

        Four tensors with the numbers that :meth:`describe` says, labels from 0 to classes - 1; else it is an
        error.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no load()")

    def read(self, root: Path) -> Tensors:
        """What :meth:`load` gives, of data sets that lie under the folder of data sets.

        Args:
            root: that folder.

        Returns:
            Four tensors.

        Raises:
            DataError: a file is missing or damaged; names it.
        """
        return self.load()

    def found(self, root: Path) -> DataShape:
        """The shape of what lies under ``root``; by default :meth:`describe`'s.

        Args:
            root: folder of the data sets.

        Returns:
            Shape and numbers, by which parameters and operations are counted.

        Raises:
            DataError: it is not there.
        """
        return shape_of(self)

    def tensors(self, root: Path, *, train_limit: int | None = None, validation: float = 0.0, seed: int = 0) -> Data:
        """Its tensors on the CPU, split and prepared.

        Args:
            root: folder of the data sets; not needed by those without files.
            train_limit: how many training examples to keep; see :func:`bnpbench.reading.splits.choose`.
            validation: share of the training examples to hold out first.
            seed: draws the examples held out.

        Returns:
            Examples (n, *shape) in float32 and labels (n,) in int64, of each part.

        Raises:
            DataError: files are missing or damaged, the limits do not fit, the data set is streamed, or it is not what
                its shape says.
        """
        from bnpbench.reading.splits import contradiction, split

        if self.streamed:
            raise DataError(f"the data set {self.kind!r} is not kept in memory but streamed")
        read, shape = self.read(root), self.found(root)
        fault = contradiction(read, shape.input, shape.classes, shape.train, shape.test, shape.tokens)
        if fault is not None:
            raise DataError(f"the data set {self.kind!r} does not load what its shape says: {fault}")
        return self.prepared(split(*read, train_limit=train_limit, validation=validation, seed=seed))

    def prepared(self, data: Data) -> Data:
        """What is done to the examples once it is known which of them are trained on; by default nothing.

        Args:
            data: the parts, which may be changed in place.

        Returns:
            The parts as they are trained on.
        """
        return data

    def open(
        self,
        root: Path,
        *,
        device: torch.device,
        augment: bool,
        memory_format: torch.memory_format,
        train_limit: int | None,
        validation: float,
        seed: int,
    ) -> Streams:
        """The parts of a streamed data set as batches on a device.

        The arguments are those of :func:`bnpbench.reading.stream.open_streams`.

        Args:
            root: folder of the data sets.
            device: where batches are delivered.
            augment: crop and flip training images at random.
            memory_format: of the images delivered.
            train_limit, validation, seed: as of :meth:`tensors`.

        Returns:
            The streams of training, test and validation examples.

        Raises:
            DataError: it is not there, is not streamed, or the limits do not fit.
        """
        raise DataError(f"the data set {self.kind!r} is kept in memory and not streamed")

    @classmethod
    def whence(cls) -> str:
        """What it is and where it comes from, in a line; by default the docstring's first."""
        return (cls.__doc__ or cls.__name__).strip().partition("\n")[0]

    @classmethod
    def missing(cls, root: Path) -> str | None:
        """Which of its files is not under ``root``, with what to do; None if all are, or it has none.

        Args:
            root: folder of the data sets.

        Returns:
            One sentence for a person, or None.
        """
        return None

    @classmethod
    def damaged(cls, root: Path) -> str | None:
        """What is wrong with its files under ``root``, which are all there, with what to do; None if nothing is.

        Args:
            root: folder of the data sets.

        Returns:
            One sentence for a person, or None.
        """
        return None

    @classmethod
    def unfit(cls, root: Path) -> str | None:
        """Why it cannot be read from ``root``, with what to do; None if it can.

        Args:
            root: folder of the data sets.

        Returns:
            One sentence for a person, or None.
        """
        return cls.missing(root) or cls.damaged(root)

    @classmethod
    def fetch(cls, root: Path, *, offline: bool = False, replace: bool = False) -> None:
        """Bring it under ``root``, unless it is there.

        Args:
            root: folder of the data sets.
            offline: download nothing.
            replace: download files again that are there and damaged.

        Raises:
            DataError: it cannot be brought, or is damaged and not to be replaced.
        """
        if (reason := cls.unfit(root)) is not None:
            raise DataError(reason)


def shape_of(dataset: DatasetPlugin) -> DataShape:
    """What a data set says of itself, held to what that must be.

    Raises:
        SuiteError: ``describe()`` gives something else; names the plugin's file and line.
    """
    shape = dataset.describe()
    if isinstance(shape, DataShape):
        return shape
    code = getattr(inspect.unwrap(type(dataset).describe), "__code__", None)
    told = "give a bnpbench.DataShape(input, classes, train, test)"
    raise SuiteError(
        f"{type(dataset).__name__}.describe gave {shape!r:.80}; {told}",
        file=code and Path(code.co_filename),
        line=code and code.co_firstlineno,
    )


class Images(DatasetPlugin):
    """Images with values in [0, 1], before ``mean`` is taken off and ``std`` divided by."""

    mean: Over = "none"  # of the training examples: of each channel, or of each value of an image
    std: Over = "none"

    def prepared(self, data: Data) -> Data:
        from bnpbench.reading.splits import standardized

        return standardized(data, self.mean, self.std)
