"""One colour and one marker for each method, in every figure of a report.

The first colours are those of Okabe and Ito (2008), which people with any common colour blindness can tell apart; the
markers tell the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from bnpbench.report.view import View


@dataclass(frozen=True)
class Ink:
    """How a method is drawn.

    Attributes:
        light: colour on white, ``#rrggbb``.
        dark: colour on a dark ground.
        marker: matplotlib's name of the marker.
    """

    light: str
    dark: str
    marker: str


_OF_KIND = {
    "vanilla": Ink("#333333", "#e4e4e4", "o"),
    "bn": Ink("#0072b2", "#4aa8f0", "s"),
    "bnp": Ink("#d55e00", "#f5853f", "D"),
    "ln": Ink("#009e73", "#2cc295", "^"),
    "renorm": Ink("#cc79a7", "#e3a0c4", "v"),
    "gn": Ink("#56b4e9", "#a5dcff", "P"),
    "4things": Ink("#e69f00", "#f2b83a", "X"),
    "bnp+gn": Ink("#882255", "#d0609a", "p"),
    "bn-pre": Ink("#332288", "#9a8cf5", "h"),
}
_SPARE = [  # colours of Paul Tol's "muted" scheme, then all again with other markers
    ("#999933", "#c6c65a"),
    ("#117733", "#58b877"),
    ("#aa4499", "#d884ca"),
    ("#44aa99", "#6fd3c2"),
    ("#661100", "#c8705a"),
    ("#6699cc", "#9cc3ea"),
]
_SPARE_MARKERS = "<>*d8Hosv^"


def inks(views: Iterable[View]) -> Mapping[str, Ink]:
    """Label of a method to its ink, for all methods of a report.

    The first label of a kind has the kind's own colour; further labels of it, and kinds that have no colour here, get
    the next spare one.
    """
    spare = (Ink(light, dark, marker) for marker, (light, dark) in product(_SPARE_MARKERS, _SPARE))
    kinds: dict[str, str] = {}
    for view in views:
        for cell in view.cells:
            kinds.setdefault(cell.label, cell.kind)
    found: dict[str, Ink] = {}
    taken: set[str] = set()
    for label, kind in sorted(kinds.items(), key=lambda item: item[0] != item[1]):
        own = kind in _OF_KIND and kind not in taken
        taken.add(kind)
        found[label] = _OF_KIND[kind] if own else next(spare, Ink("#777777", "#aaaaaa", "."))
    return found
