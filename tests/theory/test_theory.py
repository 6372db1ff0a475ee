"""The checks' surroundings: the edges of the hypotheses, verdicts, names, seeds, real data, the command."""

from __future__ import annotations

import math
import os
import re

import pytest
import torch

from bnpbench import cli
from bnpbench.errors import BnpbenchError
from bnpbench.theory import ORDER, convergence, convolution, gain, render, scaling, verify
from bnpbench.theory.activations import load
from bnpbench.theory.outcome import STATEMENTS, Bound, Equality, Finding, Outcome, Setup

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
    "figure-8": [r"N=60, n=100: gain / kappa\(D\)\^2 = \S+e-0[3-9]|N=60, n=100: gain / kappa\(D\)\^2 = 0\.000"],
}


@pytest.mark.parametrize("name", EDGES)
def test_what_happens_outside_the_hypotheses_is_shown(name: str) -> None:
    (outcome,) = verify([name], trials=5)
    for edge in EDGES[name]:
        assert re.search(edge, "\n".join(outcome.outside)), outcome.outside


def test_the_best_scaling_is_found() -> None:
    """D0 = diag(1, 1/s) is the best for orthogonal columns, and D = equal norms for any two."""
    orthogonal = torch.eye(4, 3, dtype=torch.float64) * torch.tensor([1.0, 50.0, 1e-3])
    assert scaling.best_scaling(orthogonal.unsqueeze(0)).item() == pytest.approx(1.0)
    hard = scaling.hard_columns(torch.Generator().manual_seed(1), 8, 6)
    ratio = scaling.kappa(scaling.unit_columns(hard)) / scaling.best_scaling(hard.unsqueeze(0)).item()
    assert math.sqrt(3) * 0.93 < ratio <= math.sqrt(3)


def test_the_nearest_minimizer_is_the_nearest() -> None:
    generator = torch.Generator().manual_seed(0)
    minimum = convergence._regression(generator, 40)
    away = minimum.theta + 1e-2 * torch.randn(len(minimum.theta), generator=generator, dtype=torch.float64)
    units, given = minimum.units(minimum.theta), minimum.units(away)
    grid = torch.linspace(0.9, 1.1, 20001, dtype=torch.float64)
    square = (away[-1] - minimum.theta[-1]).square()
    for own, unit in zip(units, given, strict=True):
        u, v = own[:4], own[4:]
        square = (
            square
            + ((unit[:4] - grid[:, None] * u) ** 2).sum(1).add(((unit[4:] - v / grid[:, None]) ** 2).sum(1)).min()
        )
    assert minimum.distance(away) == pytest.approx(square.sqrt().item(), rel=1e-6)
    assert minimum.loss(minimum.nearest(away)) == pytest.approx(
        minimum.loss(minimum.theta + (minimum.nearest(away) - minimum.theta))
    )


def test_the_unfolded_matrix_is_the_papers_example() -> None:
    """Section 4's 4 x 3 map under a 3 x 3 kernel: row and column order, zeros outside."""
    h = torch.tensor([[10 * a + b for b in range(1, 4)] for a in range(1, 5)], dtype=torch.float64)
    matrix = convolution.unfolded(h.view(1, 1, 4, 3), 3)
    assert matrix.shape == (12, 9)
    assert matrix[0].tolist() == [0, 0, 0, 0, 11, 21, 0, 12, 22]
    assert matrix[5].tolist() == [11, 21, 31, 12, 22, 32, 13, 23, 33]
    assert matrix[11].tolist() == [32, 42, 0, 33, 43, 0, 0, 0, 0]


def test_kappa_of_u_is_that_of_the_matrix() -> None:
    mean = torch.tensor([1.0, -3.0, 0.5], dtype=torch.float64)
    u = torch.eye(4, dtype=torch.float64)
    u[0, 1:] = -mean
    assert gain.kappa_of_u(mean) == pytest.approx(torch.linalg.cond(u).item())


def test_a_statement_that_gives_no_number_is_violated() -> None:
    bound, equality = Bound(), Equality()
    assert bound.verdict == equality.verdict == "violated"  # nothing tried
    bound.add(1.0, 2.0, "")
    equality.add_error(0.0, "")
    assert bound.verdict == equality.verdict == "holds"
    bound.add(math.nan, 2.0, "NaN")
    equality.add_error(math.nan, "NaN")
    assert bound.verdict == equality.verdict == "violated"
    assert "NaN" in bound.worst
    assert "NaN" in equality.worst


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
    assert ORDER[-5:] == ("lemma-a1", "lemma-a2", "crossing", "figure-8", "lean-form")


def test_statements_hold_on_a_network_in_training() -> None:
    torch.set_num_threads(1)
    data = load("digits", None, 0)
    assert list(data.networks) == [0, 100, 400]
    assert data.hidden(400, 1, 50).shape == (50, 100)
    plain, real = Setup(trials=5), Setup(trials=5, data=data)
    names = ("proposition-2", "theorem-3", "theorem-4", "proposition-7", "proposition-10", "proposition-11", "figure-8")
    for name in names:
        without, found = STATEMENTS[name](plain), STATEMENTS[name](real)
        assert found.verdict == "holds"
        assert found.tried != without.tried


def test_convolutions_are_tried_on_small_images() -> None:
    (outcome,) = verify(["proposition-9"], trials=2, data="digits")
    assert outcome.verdict == "holds"


@pytest.mark.data
@pytest.mark.skipif("BNPBENCH_DATA" not in os.environ, reason="needs the data sets")
def test_statements_hold_on_cifar10() -> None:
    outcomes = verify(["theorem-1", "theorem-4", "lemma-8", "proposition-9", "figure-8"], data="cifar10", trials=5)
    assert {outcome.verdict for outcome in outcomes} == {"holds"}
    assert any("cifar10, step 400, N=60" in note for note in outcomes[-1].outside)


def test_the_command_prints_a_row_a_statement(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["verify", "lemma-8", "proposition-10", "--trials", "3", "--seed", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 4
    assert rows[2].startswith("| lemma-8 ")
    assert [row.split("|")[-2].strip() for row in rows[2:]] == ["holds", "holds"]
    assert r"\|mu(t,a,p) - mu(p)\|" in rows[3]


def test_a_violated_statement_ends_the_command_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(convolution, "mean_bound", lambda k, r, s, top: 0.1 * top)
    assert cli.run(["verify", "proposition-10", "--trials", "3"]) == 1
    assert re.search(r"\| violated +\|", capsys.readouterr().out)


def test_an_unknown_statement_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["verify", "theorem-44"]) == 2
    assert "did you mean 'theorem-4'" in capsys.readouterr().err


def test_a_check_that_decides_nothing_is_information() -> None:
    outcome = Outcome(**vars(Finding("a", "b", None, "information", ("c",))), statement="x", claim="|y|")
    text = render([outcome])
    assert text.splitlines()[2].split(" | ")[-1] == "information |"
    assert "### x\n\n- c" in text
