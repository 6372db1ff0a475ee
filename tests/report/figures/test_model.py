"""Colours: one for a method, and told apart by everybody."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bnpbench.methods.base import MARKERS
from bnpbench.report.data import views
from bnpbench.report.figures import inks
from bnpbench.results import Results
from tests.support.made_results import Made, epochs


def test_one_colour_for_a_method_in_all_suites(make: Callable[..., Made]) -> None:
    made = [make(folder, name=folder) for folder in "ab"]
    for method in ("bnp", "vanilla"):
        made[0].cell(method, 16, 1, epochs([1.0]))
    for method, label in (("ln", "ln"), ("bnp", "bnp(statistics=batch)"), ("bnp", "bnp"), ("mine", "mine")):
        made[1].cell(method, 16, 1, epochs([1.0]), label=label, settings={"method": {"kind": method, "as": label}})
    found = inks([*views(made[0].read()), *views(made[1].read())])
    assert found["bnp"] == inks(views(made[0].read()))["bnp"]
    pairs = [(ink.light, ink.marker) for ink in found.values()]
    assert len(pairs) == 5 == len(set(pairs))


def test_no_two_methods_share_a_marker_while_there_are_others(make: Callable[..., Made]) -> None:
    """In grey it is all that tells them apart: of labels of one kind, and of kinds that would have the same."""
    made = make()
    kinds = ("vanilla", "bn", "ln", "bnp", "bnp-full", "foof", "kfac", "eva", "mac", "dyt")
    optimized = {"muon": "vanilla", "newton-muon": "foof", "bnp+muon": "bnp", "shampoo": "vanilla", "soap": "vanilla"}
    labels = {**optimized, **{kind: kind for kind in kinds}}
    for label, kind in labels.items():
        made.cell(kind, 16, 1, epochs([1.0]), label=label, settings={"method": {"kind": kind, "as": label}})
    found = inks(views(made.read()))
    assert len({ink.marker for ink in found.values()}) == len(labels) == 15
    assert {ink.marker for ink in found.values()} <= set(MARKERS)
    built_in = {kind: inks(views(single(make, kind)))[kind] for kind in ("vanilla", "bnp", "foof")}
    assert {kind: found[kind] for kind in built_in} == built_in


def single(make: Callable[..., Made], kind: str) -> Results:
    made = make(f"only-{kind}")
    made.cell(kind, 16, 1, epochs([1.0]))
    return made.read()


def test_of_many_labels_no_two_are_drawn_alike(make: Callable[..., Made]) -> None:
    made = make()
    for number in range(40):
        settings = {"method": {"kind": "mine", "number": number}}
        made.cell("mine", 16, 1, epochs([1.0]), label=f"mine {number}", settings=settings)
    found = inks(views(made.read()))
    assert len({(ink.light, ink.marker) for ink in found.values()}) == 40


# Machado, Oliveira and Fernandes 2009, severity 1: linear RGB as people with each colour blindness see it.
_BLINDNESS = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "none": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
}


def lab(colour: str, blindness: Sequence[Sequence[float]]) -> np.ndarray:
    """CIE L*a*b* of a colour seen so."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(blindness) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ seen / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("blindness", _BLINDNESS)
@pytest.mark.parametrize("ground", ["light", "dark"])
def test_methods_of_the_paper_are_told_apart(make: Callable[..., Made], blindness: str, ground: str) -> None:
    made = make()
    methods = ("vanilla", "bn", "bnp", "ln", "renorm", "gn", "4things", "bnp+gn")
    for method in methods:
        made.cell(method, 16, 1, epochs([1.0]))
    found = inks(views(made.read()))
    colours = {method: lab(getattr(found[method], ground), _BLINDNESS[blindness]) for method in methods}
    apart = {
        (one, other): float(np.linalg.norm(colours[one] - colours[other]))
        for one in methods
        for other in methods
        if one < other
    }
    closest = min(apart, key=lambda pair: apart[pair])
    assert apart[closest] >= 10, (closest, apart[closest])  # 2.3 is just noticeable
