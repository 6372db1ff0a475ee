"""What a check returns, the table of checks, and the two ways in which a statement is weighed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from bnpbench.theory.activations import Activations

Verdict = Literal["holds", "violated", "information"]


@dataclass(frozen=True)
class Setup:
    """What all checks share.

    Attributes:
        trials: random instances a check draws, at least 1.
        seed: of all random numbers; each check has a stream of its own.
        data: activations of a network in training on a real data set, tried as well if given.
    """

    trials: int = 60
    seed: int = 0
    data: Activations | None = None

    def generator(self, name: str) -> torch.Generator:
        """The random stream of a check."""
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        tried: instances and sizes.
        worst: the instance that came nearest to breaking the statement.
        tightest: the ratio of the left side to the right that came nearest to breaking the statement, 1 where they
            meet; null where nothing is compared by size.
        verdict: ``holds`` or ``violated``, inside the hypotheses; ``information`` where there is nothing to decide.
        outside: what happens outside the hypotheses.
    """

    tried: str
    worst: str
    tightest: float | None
    verdict: Verdict
    outside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome(Finding):
    """A finding with the statement that it is about."""

    statement: str = ""
    claim: str = ""


Check = Callable[[Setup], Finding]

STATEMENTS: dict[str, Callable[[Setup], Outcome]] = {}


def statement(name: str, claim: str) -> Callable[[Check], Callable[[Setup], Outcome]]:
    """Register a check under the statement's name, such as ``proposition-6``."""

    def register(check: Check) -> Callable[[Setup], Outcome]:
        def run(setup: Setup) -> Outcome:
            return Outcome(**vars(check(setup)), statement=name, claim=claim)

        STATEMENTS[name] = run
        return run

    return register


class Bound:
    """Weighs instances of ``left <= right``; ``slack`` is what rounding may add to the ratio."""

    def __init__(self, slack: float = 1e-9) -> None:
        self.slack, self.count, self.tightest, self.worst, self.broken = slack, 0, 0.0, "nothing tried", 0

    def add(self, left: float, right: float, where: str) -> None:
        """One instance; ``where`` says which."""
        self.count += 1
        no_room = math.inf if left > right else 0.0
        ratio = left / right if right > 0 else no_room
        if not ratio <= 1 + self.slack:
            self.broken += 1
        if not ratio <= self.tightest or self.count == 1:
            self.tightest, self.worst = ratio, f"{left:.6g} against {right:.6g} at {where}"

    @property
    def verdict(self) -> Verdict:
        return "violated" if self.broken or not self.count else "holds"


class Equality:
    """Weighs instances of ``left = right`` by their relative error."""

    def __init__(self, tolerance: float = 1e-9) -> None:
        self.tolerance, self.count, self.largest, self.worst = tolerance, 0, 0.0, "nothing tried"

    def add(self, left: torch.Tensor, right: torch.Tensor, where: str) -> None:
        """One instance: the largest difference over the largest entry."""
        scale = max(left.abs().max().item(), right.abs().max().item())
        self.add_error((left - right).abs().max().item() / scale if scale else 0.0, where)

    def add_error(self, error: float, where: str) -> None:
        self.count += 1
        if not error <= self.largest or self.count == 1:
            self.largest, self.worst = error, f"relative error {error:.1e} at {where}"

    @property
    def tightest(self) -> float:
        return 1 + self.largest

    @property
    def verdict(self) -> Verdict:
        return "holds" if self.count and self.largest <= self.tolerance else "violated"


def both(*verdicts: Verdict) -> Verdict:
    """A statement of several parts is violated if one of them is."""
    return "violated" if "violated" in verdicts else "holds"
