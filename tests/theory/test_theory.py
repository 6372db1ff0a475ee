"""The checks' surroundings: the edges of the hypotheses, verdicts, names, seeds, real data, the command."""

from __future__ import annotations

import os
import re

import pytest
import torch

from bnpbench.errors import BnpbenchError
from bnpbench.theory import ORDER, verify

EDGES = {
    "theorem-1": [r"dimension 7, not 3", r"contracts by 1\.000000 along it", r"grows by 1\.100"],
    "proposition-2": [r"S is not diagonal"],
    "theorem-3": [r"\d+ of \d+ features tried were dead"],
    "theorem-4": [r"N = 2, n = 2, .*kappa\(H\)\^2 = 2\.000, kappa\(HU\)\^2 = 4\.000", r"not necessary", r"60 x 101"],
    "proposition-5": [r"3 degrees of freedom: .*grows like n\^0\.[1-9]", r"n = 1 and 2"],
    "proposition-6": [r"2,145,204 \(10\.4%", r"5,286,324 \(1\.6%", r"8,636,852 \(1\.3%"],
    "proposition-7": [r"zero padding: already the outputs differ", r"after 50 steps", r"through the statistics"],
    "proposition-9": [r"diagonals alone the Hessian is off"],
    "proposition-10": [r"k = 5 has an error of 1 and a bound of 0", r"variance"],
    "proposition-11": [r"N = 3, n = 1, .*1\.500 against 1\.000"],
    "crossing": [r"up to N = 21, .*up to N = 54"],
    "lean-form": [r"52,624 against 1,880,264 at N = 1; fewer up to N = 147"],
    "full-bnp": [r"correlation 0\.9\d+\): after one step the gradients differ by 0\.\d+"],
    "foof-kappa": [r"multiplied by 100$"],
    "kfac-newton": [r"4-4-3, N = 40: the step is off by [0-9.]+ of Newton's", r"N = 3, n = 4: .*not a number"],
    "figure-8": [r"N=60, n=100: gain / kappa\(D\)\^2 = \S+e-0[3-9]|N=60, n=100: gain / kappa\(D\)\^2 = 0\.000"],
}


@pytest.mark.parametrize("name", EDGES)
def test_what_happens_outside_the_hypotheses_is_shown(name: str) -> None:
    (outcome,) = verify([name], trials=5)
    for edge in EDGES[name]:
        assert re.search(edge, "\n".join(outcome.outside)), outcome.outside


def test_which_statement_is_tried_is_told() -> None:
    told: list[tuple[int, int, str]] = []
    verify(["theorem-4", "proposition-6"], trials=1, told=lambda *far: told.append(far))
    assert told == [(0, 2, "theorem-4"), (1, 2, "proposition-6")]


def test_the_same_seed_gives_the_same_outcome() -> None:
    first, again, other = (verify(["theorem-4"], trials=5, seed=seed) for seed in (3, 3, 4))
    assert first == again != other


def test_threads_are_left_as_they_were() -> None:
    torch.set_num_threads(2)
    verify(["lemma-8"], trials=1)
    assert torch.get_num_threads() == 2


def test_unknown_names_are_told_with_the_closest() -> None:
    with pytest.raises(BnpbenchError, match="did you mean 'proposition-11'"):
        verify(["propositon-11"])
    with pytest.raises(BnpbenchError, match="there are theorem-1, proposition-2"):
        verify(["x"])
    with pytest.raises(BnpbenchError, match="did you mean 'digits'"):
        verify(["lemma-8"], data="digit")
    with pytest.raises(BnpbenchError, match="at least 1"):
        verify(["lemma-8"], trials=0)


def test_the_order_is_the_papers() -> None:
    assert ORDER[:5] == ("theorem-1", "proposition-2", "theorem-3", "theorem-4", "proposition-5")
    assert ORDER[-6:] == ("crossing", "figure-8", "foof-kappa", "full-bnp", "kfac-newton", "lean-form")


@pytest.mark.data
@pytest.mark.skipif("BNPBENCH_DATA" not in os.environ, reason="needs the data sets")
def test_statements_hold_on_cifar10() -> None:
    outcomes = verify(["theorem-1", "theorem-4", "lemma-8", "proposition-9", "figure-8"], data="cifar10", trials=5)
    assert {outcome.verdict for outcome in outcomes} == {"holds"}
    assert any("cifar10, step 400, N=60" in note for note in outcomes[-1].outside)
