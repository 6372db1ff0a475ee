"""How the code is laid out: what CONTRIBUTING.md and ARCHITECTURE.md promise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOOKS = (  # torch's hooks, dispatch and autograd take and give anything
    "bnp/",
    "measure/flops.py",
    "training/accounting.py",
    "layers/synchronized.py",
    "profiling/phases.py",
)


def trees(folder: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path.relative_to(ROOT / folder), ast.parse(path.read_text())


def test_no_test_imports_another() -> None:
    found = [
        f"{path}: {node.module}"
        for path, tree in trees("tests")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and any(part.startswith("test_") for part in str(node.module).split("."))
    ]
    assert found == []


def test_few_signatures_take_or_give_anything() -> None:
    """Outside torch's hooks, for JSON's edges and what Ray gives."""
    found = []
    for path, tree in trees("bnpbench"):
        if str(path).startswith(HOOKS):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                arguments += [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
                annotations = [argument.annotation for argument in arguments] + [node.returns]
                found += [
                    f"{path}:{node.lineno}"
                    for annotation in annotations
                    if isinstance(annotation, ast.Name) and annotation.id == "Any"
                ]
    assert len(found) <= 30, found


def test_private_names_of_the_package_are_rare_in_tests() -> None:
    names = {"bnpbench"}
    found = []
    for path, tree in trees("tests"):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in names:
                found += [f"{path}: {alias.name}" for alias in node.names if alias.name.startswith("_")]
    assert len(found) <= 15, found
