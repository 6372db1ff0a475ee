"""``bnpbench list`` and the bare command."""

from __future__ import annotations

import re

import pytest

from bnpbench.cli import run
from bnpbench.cli.listing import What
from bnpbench.registry import BASES, built_in, nouns


@pytest.mark.parametrize("what", list(What))
def test_everything_that_a_suite_may_name_is_listed_a_line_each(what: What, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert all(line.strip() for line in lines)


@pytest.mark.parametrize("base", BASES)
def test_a_kind_stands_with_its_options_and_their_defaults(base: type, capsys: pytest.CaptureFixture[str]) -> None:
    run(["list", nouns(base)])
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    for kind, cls in built_in().kinds(base).items():
        for name in cls.model_fields.keys() - {"kind", "label"}:
            assert name in lines[kind]


def test_values_of_options_are_those_of_a_suite(capsys: pytest.CaptureFixture[str]) -> None:
    run(["list", "optimizers"])
    (sgd,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sgd")]
    assert sgd.endswith("lr, momentum = 0.0, nesterov = false")


@pytest.mark.parametrize("base", BASES)
def test_no_marks_of_code_and_no_value_that_a_suite_cannot_write(
    base: type, capsys: pytest.CaptureFixture[str]
) -> None:
    """Double backticks stood there, ``path = `` and ``content = none``."""
    run(["list", nouns(base)])
    text = capsys.readouterr().out
    assert "``" not in text
    assert not re.search(r"(?<!mean )(?<!std )(?<!sites )= none|= ,", text)  # of these "none" is a value


def test_options_without_a_value_by_default_are_optional(capsys: pytest.CaptureFixture[str]) -> None:
    run(["list", "datasets"])
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    for option in ("path (optional)", "content (optional)", "context = 128"):
        assert option in lines["text"]
    assert "content (optional)" in lines["npz"]
    assert " path" in lines["npz"].replace("path (optional)", "")


def test_the_bare_command_shows_help_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Usage: ")
    assert text.count("  bnpbench ") == 3
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("list", f"list: say which of {', '.join(What)}\n"),
        ("list method", f"'method' is not one of {', '.join(What)} (did you mean 'methods'?)"),
        ("list birds", f"'birds' is not one of {', '.join(What)}\n"),
        ("report --format htm", "is not one of terminal, markdown, csv, json, latex, html (did you mean 'html'?)"),
    ],
)
def test_what_is_none_of_several_is_told_with_these(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "\\t" not in told
    assert "Value error" not in told
