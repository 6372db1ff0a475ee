"""What the methods reach in networks of others, from made-up results."""

from __future__ import annotations

from collections.abc import Callable

from bnpbench.report.tables import chapters
from tests.support.made_results import Made, epochs

SITES = "bn1: BatchNorm2d of 8\nblock.bn: BatchNorm2d of 16"


def lines(made: Made) -> list[str]:
    sections = [s for chapter in chapters(made.read()) for s in chapter.sections]
    return [line for section in sections if section.title == "What the methods reach" for line in section.lines]


def test_sites_and_layers_are_counted_and_the_others_named(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bn", 16, 1, epochs([1.0]), sites=SITES, sites_served=2, parameters=1000)
    made.cell("bn", 16, 2, epochs([1.0]), sites=SITES, sites_served=2, parameters=1000)
    reached = {"bnp_layers": 49, "bnp_parameters": 970, "bnp_skipped": "a.qkv: used without calling it\nb: tied"}
    made.cell("bnp", 16, 1, epochs([1.0]), sites=SITES, sites_served=0, parameters=1000, **reached)
    assert lines(made) == [
        "bn: 2 of 2 sites",
        "bnp: 0 of 2 sites",
        "bnp conditions 49 of 51 layers, 97% of parameters; not a.qkv: used without calling it; b: tied",
    ]


def test_networks_that_are_built_with_their_method_have_no_such_section(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bn", 16, 1, epochs([1.0]))
    assert lines(made) == []


def test_optimizers_that_share_a_network_are_told_with_their_shares(make: Callable[..., Made]) -> None:
    made = make()
    parts = "muon: 960, weight decay decoupled\nadamw: 40, weight decay decoupled"
    made.cell("bn", 16, 1, epochs([1.0]), parameters=1000, optimizer_parts=parts)
    made.cell("bnp", 16, 1, epochs([1.0]), parameters=1000, optimizer_parts="sgd: 1000, weight decay coupled")
    assert lines(made) == ["muon 96% of parameters, adamw the rest; weight decay is decoupled"]
