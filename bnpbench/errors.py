"""Every error that bnpbench raises on purpose.

    BnpbenchError              exit code 2: usage, before anything ran
    ├── SuiteError             a suite that cannot be run: file, line, key path
    ├── DataError              a data set that is missing, damaged or does not fit the suite
    ├── DeviceError            a device that is not there
    ├── ResultsError           results that cannot be read or written
    ├── StatisticsError        BNP: a gradient without statistics
    ├── NotApplicable          a method that has no meaning in a setting (BN over a single row)
    ├── WorkersLost          exit code 3: a cluster lost its last worker, cells are not measured
    └── NothingToCompare       exit code 4: no data for the question asked

Each message says what is wrong, where, and what to do. They are raised where the
fault is known and turned into an exit code once, in ``bnpbench.cli``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Self


class BnpbenchError(Exception):
    """Base of all errors that a user can mend."""

    exit_code = 2


class Origin(NamedTuple):
    """Where a setting was written.

    Attributes:
        file: the suite's path; None for the command line.
        line: in that file, from 1.
        key: dotted key path, such as ``train.optimizer.lr``; the option of the command line.
    """

    file: Path | None = None
    line: int | None = None
    key: str | None = None


class SuiteError(BnpbenchError):
    """A suite that cannot be run.

    Args:
        message: what is wrong and what to do.
        file: the suite's path, if it came from a file.
        line: line number in that file, from 1.
        key: dotted key path, such as ``train.optimizer.lr``.
        closest: the valid key nearest to a misspelt one.
    """

    def __init__(
        self,
        message: str,
        *,
        file: Path | None = None,
        line: int | None = None,
        key: str | None = None,
        closest: str | None = None,
    ) -> None:
        self.message, self.file, self.line, self.key, self.closest = message, file, line, key, closest
        super().__init__(str(self))

    def at(self, origin: Origin) -> Self:
        """The same error at another origin."""
        return type(self)(self.message, **origin._asdict(), closest=self.closest)

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        head = ": ".join(part for part in (place, self.key, self.message) if part)
        return f"{head} (did you mean {self.closest!r}?)" if self.closest else head


class DataError(BnpbenchError):
    """A data set that is missing, damaged or too small for the suite."""


class DeviceError(BnpbenchError):
    """A device that is not there or cannot do what the suite asks."""


class ResultsError(BnpbenchError):
    """Results that cannot be read or written."""


class StatisticsError(BnpbenchError):
    """A gradient that BNP has no statistics for; names the layer."""


class NotApplicable(BnpbenchError):
    """A method that has no meaning in a setting, with the reason; a status, never a failure.

    Args:
        message: the reason.
        served: at how many sites of a network of others it would have had a meaning, where it is known.
    """

    def __init__(self, message: str, served: int | None = None) -> None:
        self.served = served
        super().__init__(message)


class WorkersLost(BnpbenchError):
    """A cluster has no worker left for cells that are still to be measured."""

    exit_code = 3


class NothingToCompare(BnpbenchError):
    """Nothing was measured that answers the question."""

    exit_code = 4


_NO_MEMORY = (
    "can't start new thread",
    "can't allocate memory",
    "bad_alloc",
)  # in a RuntimeError of Python's or torch's


def refused(error: BaseException) -> BnpbenchError | None:
    """What the machine refused, as an error that the user can mend: memory, a file, a library; else None."""
    if isinstance(error, MemoryError) or any(word in str(error) for word in _NO_MEMORY):
        return BnpbenchError(
            f"the memory that this process may use is not enough ({error or 'MemoryError'}); end other programs, or "
            "raise its limits (ulimit -v, the container's)"
        )
    if isinstance(error, ImportError) and not str(error.name).startswith("bnpbench"):
        return BnpbenchError(f"a library cannot be loaded ({error}); install it anew, or raise the limits of memory")
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return BnpbenchError(f"{place}{reason}; make room or raise the limit there, or name another place")
    return None
