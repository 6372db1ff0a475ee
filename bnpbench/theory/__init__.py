"""The numbered statements of the paper, and some on BNP's kin, each tried on random and, if asked, on real data.

A check returns what it tried, the instance that came nearest to breaking the statement, the tightest ratio of its two
sides and a verdict, in float64 and from a seed; what happens outside the hypotheses is shown beside it. Adding a
statement is one function under ``@statement(name, claim)`` in a module that is imported here.

Source: Lange, Helfrich, Ye, "Batch Normalization Preconditioning for Neural Network Training", JMLR 23(72), 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path

import torch

from bnpbench.errors import BnpbenchError
from bnpbench.theory import (
    convergence,
    convolution,
    costs,
    equivalence,
    gain,
    hessian,
    natural,
    norms,
    preconditioners,
    scaling,
)
from bnpbench.theory.activations import load
from bnpbench.theory.outcome import STATEMENTS, Outcome, Setup
from bnpbench.theory.rendering import OUTSIDE, render, table_of

__all__ = ["ORDER", "OUTSIDE", "Outcome", "render", "table_of", "verify"]

_MODULES = (
    convergence,
    hessian,
    scaling,
    norms,
    costs,
    equivalence,
    convolution,
    gain,
    preconditioners,
    natural,
)  # imported for their statements
_FIRST = ("theorem", "proposition", "lemma")


def _place(name: str) -> tuple[int, float | str]:
    """By the paper's one counter, then the appendix's lemmas, then what has no number."""
    kind, _, number = name.partition("-")
    if kind in _FIRST and number.isdigit():
        return 0, float(number)
    return (1, number) if kind in _FIRST else (2, name)


ORDER: tuple[str, ...] = tuple(sorted(STATEMENTS, key=_place))
"""Every statement, in the paper's order."""


def verify(
    statements: Iterable[str] | None = None,
    *,
    data: str | None = None,
    data_dir: Path | None = None,
    trials: int = Setup.trials,
    seed: int = 0,
    told: Callable[[int, int, str], None] = lambda done, of, doing: None,
) -> list[Outcome]:
    """Try statements of the paper.

    Args:
        statements: names such as ``theorem-4`` and ``proposition-6``; None tries all.
        data: a data set; the statements are then also tried on activations of a network in training on it.
        data_dir: where the stored data sets lie; None: ``BNPBENCH_DATA`` or the user's cache folder.
        trials: random instances a check draws, more or fewer where one is dear.
        seed: of all random numbers.
        told: is told how many statements are tried, of how many, and which is next.

    Returns:
        One outcome a statement, in the order asked for.

    Raises:
        BnpbenchError: no such statement or data set, or trials below 1.
        DataError: the data set is missing or damaged.
    """
    wanted = ORDER if statements is None else tuple(dict.fromkeys(statements))
    for name in wanted:
        if name not in STATEMENTS:
            close = get_close_matches(name, ORDER, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(ORDER)}"
            raise BnpbenchError(f"there is no statement {name!r}; {hint}")
    if trials < 1:
        raise BnpbenchError(f"trials must be at least 1, not {trials}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # thousands of small matrices: more threads only wait for each other
    try:
        setup = Setup(trials, seed, None if data is None else load(data, data_dir, seed))
        outcomes = []
        for place, name in enumerate(wanted):
            told(place, len(wanted), name)
            outcomes.append(STATEMENTS[name](setup))
        return outcomes
    finally:
        torch.set_num_threads(threads)
