"""A report as one page: read as a browser would, and results to make one of."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

from bnpbench.results import Results
from tests.support.made_results import Made, epochs


class Reader(HTMLParser):
    """Elements, in order, with their attributes; whether all are closed; what the tables hold."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append((self.elements[-1][1].get("type") or "", data))
        elif data.strip():
            self.texts.append(data.strip())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def results(make: Callable[..., Made], label: str = "bnp") -> Results:
    made = make()
    keys = [
        made.cell("bnp", 16, seed, epochs([1.0, 1.5], [0.5, 0.6], train_loss=[1.0, 0.5], steps=[10] * 2), label=label)
        for seed in (1, 2)
    ]
    made.cell("vanilla", 16, 1, epochs([0.5, 0.5], [0.4, 0.5], train_loss=[1.0, 0.8], steps=[10] * 2))
    made.claim("test_accuracy", "value", keys, at_least=0.5, says=f"above a half {label}")
    return made.read()
