"""Where in a network a normalization may stand, and why a method has no meaning there: known without torch."""

from __future__ import annotations

from dataclasses import dataclass


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
    other = "bnp" if preconditioned else "vanilla"
    return f"the network {network!r} asks for no normalization: {method!r} would be {other} under another name"


def nothing_to_precondition(network: str, method: str) -> str:
    """What is wrong with a preconditioner that no layer is left for."""
    return f"no layer of the network {network!r} is preconditioned: {method!r} would do nothing under its name"
