"""Lines of values: by bisection, against a scan of every prefix."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnpbench.suite.source import KeyPath, contains, dotted, line_of

TEXT = '''\
# a comment
name = "x"

[train]          # [not a table]
hidden = [
    100,  # "
    200,
]
text = """
[sweep]
seed = 1
"""
other = \'\'\'
]]\'\'\'
quoted = "a # b [ \\" ["
"a key" = { inner = [1, { deep = 2 }] }

[train.nested.table]
value = 1
[[claim]]
says = 'one ['

[[claim]]
says = "two"
left.method.kind = "bn"
left.method.eps = 1
[sweep]
seed = [1]
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), None),
        (("name",), 2),
        (("train",), 4),
        (("train", "hidden"), 5),
        (("train", "hidden", 1), 5),
        (("train", "hidden", 7), 5),
        (("train", "missing"), 4),
        (("train", "text"), 9),
        (("train", "other"), 13),
        (("train", "quoted"), 15),
        (("train", "a key", "inner", 1, "deep"), 16),
        (("train", "nested"), 18),
        (("train", "nested", "table", "value"), 19),
        (("claim",), 20),
        (("claim", 0, "says"), 21),
        (("claim", 1), 23),
        (("claim", 1, "says"), 24),
        (("claim", 1, "left", "method"), 25),
        (("claim", 1, "left", "method", "eps"), 26),
        (("sweep", "seed", 0), 28),
        (("nowhere", "at", "all"), None),
    ],
)
def test_lines(path: KeyPath, line: int | None) -> None:
    assert line_of(TEXT, path) == line


def scanned(text: str, path: KeyPath) -> int | None:
    """The same by trying every prefix in turn."""
    lines, start = text.split("\n"), 0
    for end in range(1, len(lines) + 1):
        try:
            document = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        if contains(document, path):
            return next(n for n in range(start, end) if lines[n].strip() and not lines[n].lstrip().startswith("#")) + 1
        start = end
    return None


def paths(document: Any, before: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every key path of a document."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path for key, value in items for path in ((*before, key), *paths(value, (*before, key)))]


STATEMENTS = st.lists(
    st.sampled_from(
        [
            "# [ comment",
            "",
            "a{n} = 1",
            'b{n} = "[#"',
            "c{n} = [1, # ]\n 2,\n\n]",
            'd{n} = """\n[x]\n"quoted" \\\n"""',
            "e{n} = '''\n'[' # no\n'''",
            "f{n}.g.h = [[1, [2]], {{ x = '}}' }}]",
            "[t{n}]",
            "[[list]]",
            '"key [{n}]" = 1',
        ]
    ),
    max_size=12,
)


@settings(deadline=None)
@given(STATEMENTS)
def test_bisection_finds_what_a_scan_finds(statements: list[str]) -> None:
    text = "\n".join(statement.format(n=n) for n, statement in enumerate(statements))
    for path in paths(tomllib.loads(text)):
        assert line_of(text, path) == scanned(text, path), path


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("train", "optimizer", "lr"), "train.optimizer.lr"),
        (("sweep", "method", 2, "rho"), "sweep.method[2].rho"),
        (("a b", "c.d", "é"), "'a b'.'c.d'.'é'"),
        (("k" * 300,), "k" * 197 + "..."),
    ],
)
def test_paths_as_people_write_them(path: KeyPath, text: str) -> None:
    assert dotted(path) == text
