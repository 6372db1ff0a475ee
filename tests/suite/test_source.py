"""What a hostile or broken file does: a SuiteError, at once, and never anything else."""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bnpbench.errors import SuiteError
from bnpbench.suite import load_suite
from bnpbench.suite.source import KeyPath, contains, dotted, line_of
from tests.support.suite_texts import CLAIM, SMALL, changed


def numbers(count: int, start: int = 0) -> str:
    return "[" + ",\n".join(map(str, range(start, start + count))) + "]"


REFUSED = {
    "40 KB dotted key": (SMALL + ".".join(["a"] * 20_000) + " = 1", 11, "at most 2,000 characters, this one 40,003"),
    "990 dots": (SMALL + ".".join(["a"] * 990) + " = 1", 11, "nested too deep"),
    "990 dots in 33 headers": ("\n".join(f"[{'.'.join(['a'] * 900)}.b{n}]" for n in range(33)), 1, "nested too deep"),
    "500 brackets": (SMALL + "x = " + "[" * 500 + "]" * 500, 11, "nested too deep"),
    "900 brackets left open": (SMALL + "x = " + "[" * 900, 11, "nested too deep"),
    "400 braces": (SMALL + "x = " + "{a=" * 400 + "1" + "}" * 400, 11, "nested too deep"),
    "17 levels": (SMALL + "x = " + "[" * 17 + "]" * 17, 11, "nested too deep; at most 16 levels"),
    "1,000,000 cells": (
        changed(changed(SMALL, "[16, 256]", numbers(1000, 1)), "[1, 2, 3]", numbers(1000)).replace(
            '"vanilla", "bn", "bnp"', '"bn"'
        ),
        7,
        "1,000,000 cells; a suite has at most 10,000",
    ),
    "10,001 seeds": (changed(SMALL, "[1, 2, 3]", numbers(10_001)), 10, "10,001 values"),
    "65,537 bytes": ("#" * 1000 + "\n" * (64 * 1024 - 999), None, "at most 64 KiB"),
    "2,001 characters": (SMALL + "#" * 2001, 11, "at most 2,000 characters, this one 2,001"),
    "64-bit overflow": (changed(SMALL, "= 20", "= 9223372036854775808"), 6, "more than 64 bits"),
    "1,500 digits": (changed(SMALL, "= 20", "= " + "9" * 1500), 6, "more than 64 bits"),
    "inf": (changed(SMALL, "lr = 0.1", "lr = inf"), 5, "inf is not a finite number"),
    "nan": (changed(SMALL, "lr = 0.1", "lr = nan"), 5, "nan is not a finite number"),
    "1e400": (changed(SMALL, "lr = 0.1", "lr = 1e400"), 5, "inf is not a finite number"),
    "a date": (changed(SMALL, "= 20", "= 2022-01-31"), 6, "no setting is a date or time"),
    "a time": (changed(SMALL, "= 20", "= 12:00:00"), 6, "no setting is a date or time"),
    "no date": (changed(SMALL, "= 20", "= 2022-02-31"), 6, "not valid TOML"),
    "a key twice": (SMALL + "seed = [1]", 11, "not valid TOML: Cannot overwrite a value; a key stands once"),
    "a part beside the whole": (
        changed(SMALL, "epochs = 20", "optimizer.lr = 0.2\nepochs = 20"),
        6,
        "stands within its braces, as a = { b = 1 }",
    ),
    "a part beside a kind": (
        changed(SMALL, 'optimizer = { kind = "sgd", lr = 0.1 }', 'optimizer = "adam"\noptimizer.lr = 0.2'),
        6,
        "stands within its braces, as a = { b = 1 }",
    ),
    "an axis beside that of the whole": (
        SMALL + 'optimizer = ["adam"]\noptimizer.lr = [0.1]',
        12,
        'in quotes, as "a.b" = [1, 2]',
    ),
    "a table twice": (SMALL + "[train]", 11, "not valid TOML"),
    "an open text": (SMALL + 'x = """abc\n\n', 11, "not valid TOML: Unterminated string"),
    "an open list": (SMALL + "x = [3\n# the end\n", 12, "not valid TOML: Unclosed array"),
    "a NUL": (SMALL + 'x = "\0"', 11, "not valid TOML"),
    "an escaped NUL": (changed(SMALL, '"small"', '"a\\u0000b"'), 1, "NUL"),
    "a NUL in a key": (SMALL + '"a\\u0000b" = 1', 7, "NUL"),
    "a byte order mark": (b"\xef\xbb\xbf" + SMALL.encode(), 1, "byte order mark"),
    "UTF-16": (SMALL.encode("utf-16"), 1, "not UTF-8"),
    "Latin-1": (SMALL.encode() + "# \xe9".encode("latin-1"), 11, "not UTF-8"),
    "1,200 verdicts": (
        SMALL + changed(CLAIM, "[16, 256]", f"[{'16, ' * 400}], epochs = [20, 20, 20]"),
        15,
        "more than 1,000 verdicts",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_file_is_refused_at_once(refuse: Callable[[str | bytes], SuiteError], name: str) -> None:
    text, line, message = REFUSED[name]
    started = time.process_time()
    error = refuse(text)
    assert time.process_time() - started < 1
    assert error.line == line
    assert message in error.message
    assert len(str(error)) < 1000


LARGE = {
    "9,990 cells": changed(SMALL, "[1, 2, 3]", numbers(1665)),
    "1,600 overrides": SMALL + "[[override]]\nwhen.seed = 1\nset.epochs = 2\n" * 1400,
    "9,600 cells, 1,000 overrides": changed(SMALL, "[1, 2, 3]", numbers(1600))
    + "".join(f"[[override]]\nwhen.method='bn'\nset.optimizer.lr={n}\n" for n in range(1, 1000)),
    "200 claims of 9,000 cells": changed(SMALL, "[1, 2, 3]", numbers(1500)) + CLAIM * 200,
    "4,999 learning rates": SMALL.replace('"vanilla", "bn", "bnp"', '"bn"')
    .replace("[16, 256]", "[16]")
    .replace("[1, 2, 3]", "[1]")
    + "optimizer.lr = ["
    + ",\n".join(str(n / 1e4) for n in range(1, 5000))
    + "]",
    "20,000 lines": SMALL + "\n" * 20_000,
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_suite_loads_within_a_second(load: Callable[[str], object], name: str) -> None:
    load(SMALL)  # the models of the vocabulary are built once
    seconds = []
    for _ in range(3):
        started = time.process_time()
        load(LARGE[name])
        seconds.append(time.process_time() - started)
        if seconds[-1] < 2:
            return
    pytest.fail(f"took {min(seconds):.2f} s of processor time")


def test_a_fault_in_the_last_of_20000_lines_is_found_at_once(refuse: Callable[[str], SuiteError]) -> None:
    started = time.process_time()
    error = refuse(SMALL + "\n# nothing\n" * 5000 + "zz = [3]")
    assert time.process_time() - started < 1
    assert (error.line, error.key) == (10_011, "sweep.zz")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere/a.toml", "no such file"),
        ("a.toml/b.toml", "no such file"),
        ("x" * 5000 + ".toml", "cannot be read"),
        ("a\0b.toml", "no such file|cannot be read"),
        ("/dev/zero", "not a file"),
        ("./", "not a file"),
        ("", "no suite '' ships"),
        ("nope", "no suite 'nope' ships with bnpbench; there are: "),
    ],
)
def test_what_is_no_suite_is_refused(tmp_path: Path, source: str, message: str) -> None:
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        with pytest.raises(SuiteError, match=message):
            load_suite(source)
    finally:
        os.chdir(before)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(SuiteError, match="not a file"):
        load_suite(tmp_path / "pipe.toml")


def test_line_ends_of_windows_change_nothing(load: Callable[[str], object], tmp_path: Path) -> None:
    expected = load(SMALL).cells(device="cpu", threads=1)  # type: ignore[attr-defined]
    (tmp_path / "crlf.toml").write_bytes(SMALL.replace("\n", "\r\n").encode())
    assert load_suite(tmp_path / "crlf.toml").cells(device="cpu", threads=1) == expected


# --- anything at all --------------------------------------------------------------------------

FRAGMENTS = st.sampled_from(
    [
        *SMALL.splitlines(keepends=True),
        *CLAIM.splitlines(keepends=True),
        "[[override]]\n",
        'when = { method = "bn" }\n',
        "when = { }\n",
        "set = { optimizer.lr = 0.5 }\n",
        "set = { method = { rho = 1, kind = 3 } }\n",
        'set = { method = "ln", network = [1], dataset = {} }\n',
        "[measure]\n",
        'interleave = ["method"]\n',
        'interval = "2%"\n',
        "[select]\n",
        'over = "optimizer.lr"\n',
        "[[reference]]\n",
        "cell = { seed = [[1], 2, true, 1.0] }\n",
        "value = 1.5\n",
        "optimizer.lr = [0.1, {}, [], 1]\n",
        'method = [{ kind = ["bn"] }, { label = 3 }, true, {}]\n',
        "schedule = [{ kind = 'steps', epochs = [1, 'a'], warmup = { kind = 'linear' } }]\n",
        "weight_decay = [1e-4, true, { value = {} }]\n",
        "dataset.shape = [[1], [2, 3], 4]\n",
        "at = { epochs = [1, 2], epoch = 3 }\n",
        "target = 0.5\n",
        'x."\\u00e9" = [[[{ y = "" }]]]\n',
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(FRAGMENTS, max_size=18), spoilt=st.binary(max_size=3), at=st.integers(0, 400))
@example(lines=[], spoilt=b"", at=0)
def test_whatever_stands_in_a_file_only_suite_errors_escape(
    tmp_path: Path, lines: list[str], spoilt: bytes, at: int
) -> None:
    raw = "".join(lines).encode()
    _only_suite_errors(tmp_path, raw[:at] + spoilt + raw[at:])


SCALARS = st.one_of(
    st.booleans(),
    st.integers(-3, 300),
    st.floats(0, 1).map(lambda x: round(x, 3)),
    st.sampled_from(["bn", "bnp", "fc", "cnn", "digits", "sgd", "auto", "cpu", "label", "l2", "steps", "x"]),
)
NAMES = st.sampled_from(
    [
        *("dataset", "network", "method", "optimizer", "batch_size", "epochs", "seed", "schedule", "weight_decay"),
        *("kind", "hidden", "lr", "rho", "label", "shape", "value", "warmup", "where", "train_limit", "validation"),
        *("threads", "momentum", "nesterov", "groups", "betas"),
    ]
)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(NAMES, v, max_size=3), max_leaves=5)
TABLES = st.dictionaries(NAMES, VALUES, max_size=4)


def toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml(inner)}" for name, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(train=TABLES, sweep=TABLES, when=TABLES, change=TABLES, left=TABLES, where=TABLES)
def test_whatever_the_tables_hold_only_suite_errors_escape(
    tmp_path: Path, train: object, sweep: object, when: object, change: object, left: object, where: object
) -> None:
    text = changed(SMALL, "epochs = 20\n", "") + f"[[override]]\nwhen = {toml(when)}\nset = {toml(change)}\n"
    text += changed(CLAIM, '{ method = "bnp" }', toml(left)).replace("{ batch_size = [16, 256] }", toml(where))
    _only_suite_errors(tmp_path, text.encode())
    _only_suite_errors(tmp_path, f"train = {toml(train)}\nsweep = {toml(sweep)}\n".encode())


def _only_suite_errors(folder: Path, raw: bytes) -> None:
    path = folder / "fuzz.toml"
    path.write_bytes(raw)
    try:
        suite = load_suite(path)
    except SuiteError:
        pass
    else:
        assert suite.cells(device="cpu", threads=1)


DOCUMENT = '''\
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
    assert line_of(DOCUMENT, path) == line


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
