"""The public names: found on first use, and saying what they take, give and raise."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

import bnpbench
from bnpbench.registry import BASES

PUBLIC = [getattr(bnpbench, name) for name in bnpbench.__all__]


def functions() -> Iterator[tuple[str, Any]]:
    """Every public function, and every public method that a public class defines itself or gets from this package."""
    for thing in dict.fromkeys([*PUBLIC, *BASES]):
        if not inspect.isclass(thing):
            yield thing.__name__, thing
            continue
        for name, member in vars(thing).items():
            plain = getattr(member, "__func__", member)
            if inspect.isfunction(plain) and not name.startswith("_"):
                yield f"{thing.__name__}.{name}", plain


def described(function: Any) -> set[str]:
    """The parameters that ``Args`` names."""
    section = re.search(r"Args:\n(.*?)(?:\n\n|\Z)", inspect.getdoc(function) or "", re.DOTALL)
    if section is None:
        return set()
    heads = re.findall(r"^ {4}(\S[^:\n]*):", section[1], re.MULTILINE)
    return {name.strip(" *`") for head in heads for name in head.split(",")}


@pytest.mark.parametrize(("name", "function"), [pytest.param(*pair, id=pair[0]) for pair in functions()])
def test_a_public_function_says_what_it_takes_gives_and_raises(name: str, function: Any) -> None:
    signature, text = inspect.signature(function), inspect.getdoc(function) or ""
    assert text.strip().partition("\n")[0].endswith((".", ":", "…")), text
    missing = set(signature.parameters) - {"self", "cls"} - described(function)
    assert not missing, f"Args of {name} lacks {missing}"
    if described(function) and signature.return_annotation not in ("None", None, inspect.Signature.empty):
        assert "Returns:" in text, f"{name} does not say what it returns"
    source = textwrap.dedent(inspect.getsource(function))
    raised = {
        node.exc.func.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
    }
    assert raised - {"NotImplementedError"} <= set(re.findall(r"\w+", text.partition("Raises:")[2])), (
        f"{name}: {raised}"
    )


@pytest.mark.parametrize(
    "cls", [cls for cls in [*PUBLIC, *BASES] if inspect.isclass(cls)], ids=lambda cls: cls.__name__
)
def test_a_public_class_describes_its_attributes(cls: type) -> None:
    text = inspect.getdoc(cls) or ""
    assert text
    named = dataclasses.is_dataclass(cls) and [field.name for field in dataclasses.fields(cls)]
    for name in named or []:
        assert name.startswith("_") or re.search(rf"\b{name}\b", text), f"{cls.__name__} does not describe {name}"
    assert not issubclass(cls, BaseModel) or "." in text


def test_public_names_are_found_on_first_use_and_listed() -> None:
    code = (
        "import sys, bnpbench; assert not {name for name in sys.modules if name.startswith('bnpbench.')}; "
        "bnpbench.Site; assert 'bnpbench.sites' in sys.modules; assert 'bnpbench.bnp' not in sys.modules; "
        "assert set(bnpbench.__all__) <= set(dir(bnpbench)); assert bnpbench.Site is bnpbench.sites.Site"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_is_listed_once_and_is_what_its_home_has() -> None:
    assert sorted(bnpbench.__all__) == sorted(set(bnpbench.__all__))
    assert [thing.__name__ for thing in PUBLIC] == bnpbench.__all__
    with pytest.raises(AttributeError, match="module 'bnpbench' has no attribute 'Bnp'"):
        _ = bnpbench.Bnp
