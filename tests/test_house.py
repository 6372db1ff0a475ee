"""How the code is laid out: what CONTRIBUTING.md and ARCHITECTURE.md promise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOOKS = (  # torch's hooks, dispatch and autograd take and give anything
    "bnp/",
    "measure/flops.py",
    "training/accounting.py",
    "layers/filter_response.py",
    "layers/synchronized.py",
    "profiling/phases.py",
)
BESIDE = {  # tests of no one module, files and folders, and what they are of
    "bnp/test_capture.py": "a step that is recorded and replayed",
    "bnp/test_compiled.py": "compiled models",
    "bnp/test_curvature.py": "the matrix forms that preconditioners are held to",
    "bnp/test_precision.py": "rounding, of all of BNP",
    "bnp/test_proposition7.py": "BNP and BN on merged networks",
    "bnp/test_shapes_of_use.py": "BNP as users call it",
    "cli/test_streams.py": "streams that are closed or full, for whole commands",
    "cuda/": "whatever needs a GPU",
    "docs/": "the pages and how-to pages, followed",
    "mockgpu/": "the control flow of CUDA, on a mock GPU",
    "execution/test_fake_clock.py": "a whole suite whose numbers are known beforehand",
    "execution/test_imagenet_run.py": "a run on streamed images",
    "execution/test_kills.py": "kills at random moments, which take as long as many files",
    "execution/test_select.py": "runs that choose a value by their trials",
    "execution/test_strange_folders.py": "runs in a stranger's folder",
    "report/figures/test_strange_numbers.py": "figures and page of a stranger's results",
    "report/render/test_page_browser.py": "the page in a browser",
    "report/figures/test_titles.py": "titles of all figures",
    "report/test_strangers.py": "reports of a stranger's results",
    "report/test_suites.py": "reports of a suite file",
    "suite/test_imported_networks.py": "networks by module and function, from the suite to its results",
    "test_house.py": "the layout",
    "theory/test_mutations.py": "each check, on its statement broken",
    "training/test_readings_of_batch_norm.py": "the paper's batch normalization, from its formulas",
    "unchanged/": "keys, reports, codes and words as they were",
}
PRIVATE_NAMES = 15


def trees(folder: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path.relative_to(ROOT / folder), ast.parse(path.read_text())


# --- a test file a module --------------------------------------------------------------------


def has_logic(tree: ast.Module) -> bool:
    """Whether a function of it does more than to give a constant: not what only imports, lists and declares."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [line for line in node.body if not (isinstance(line, ast.Expr) and is_constant(line.value))]
            if not all(
                isinstance(line, ast.Pass) or (isinstance(line, ast.Return) and is_constant(line.value))
                for line in body
            ):
                return True
    return False


def is_constant(value: ast.expr | None) -> bool:
    return value is None or isinstance(value, ast.Constant)


def place_of(module: Path) -> Path:
    """The file with the tests of a module; those of a folder's ``__init__`` are named as the folder."""
    name = module.stem if module.stem != "__init__" else module.parent.name or "bnpbench"
    return module.with_name(f"test_{name}.py")


@pytest.mark.parametrize(
    ("text", "logic"),
    [
        ("import x\nA = [n for n in x.y]\n", False),
        ("class A:\n    a = 1\n    def b(self):\n        '''Words.'''\n        return 1\n", False),
        ("def a():\n    '''Words.'''\n", False),
        ("def a(b):\n    return b\n", True),
        ("class A:\n    def b(self):\n        raise NotImplementedError\n", True),
    ],
)
def test_what_has_logic(text: str, logic: bool) -> None:
    assert has_logic(ast.parse(text)) is logic


def test_every_module_with_logic_has_a_test_file() -> None:
    wanted = {place_of(path) for path, tree in trees("bnpbench") if has_logic(tree)}
    lacking = sorted(str(path) for path in wanted if not (ROOT / "tests" / path).is_file())
    assert lacking == []


def test_every_test_file_is_of_a_module_or_says_what_it_is_of() -> None:
    modules = {place_of(path) for path, _ in trees("bnpbench")}
    beside = {str(path) for path, _ in trees("tests") if path.name.startswith("test_") and path not in modules}
    assert sorted(path for path in beside if not path.startswith(tuple(BESIDE))) == []
    assert [place for place in BESIDE if not any(path.startswith(place) for path in beside)] == []


# --- what tests know -------------------------------------------------------------------------


def test_no_test_imports_another() -> None:
    found = [
        f"{path}: {name}"
        for path, tree in trees("tests")
        for node in ast.walk(tree)
        for name in imported(node)
        if any(part.startswith("test_") for part in name.split("."))
    ]
    assert found == []


def imported(node: ast.AST) -> list[str]:
    """The modules and names that a statement imports, by their whole names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each private name of the package that is imported, asked for, or put in another's place."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, alias in zip(imported(node), node.names, strict=True):
                if name.split(".")[0] == "bnpbench":
                    bound.add((alias.asname or alias.name).split(".")[0])
                    if is_private(alias.name.rpartition(".")[2]):
                        yield node.lineno, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and first_name(node.value) in bound:
            yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
            ours = first_name(node.args[0]) in bound or (words and words[0].startswith("bnpbench."))
            if ours and words and is_private(words[0].rpartition(".")[2]):
                yield node.lineno, words[0]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def first_name(value: ast.expr) -> str | None:
    while isinstance(value, ast.Attribute | ast.Call):
        value = value.value if isinstance(value, ast.Attribute) else value.func
    return value.id if isinstance(value, ast.Name) else None


def test_private_names_are_found_however_they_are_reached() -> None:
    text = """
import torch
from bnpbench.a import _b, c
from bnpbench import d
torch._x, c.y, c.__name__
d.e._f()
patch.setattr(d, "_g", 1)
patch.setattr("bnpbench.h._i", 1)
patch.setattr(d, "j", 1)
"""
    found = [(3, "_b"), (6, "_f"), (7, "_g"), (8, "bnpbench.h._i")]
    assert sorted(private_names(ast.parse(text))) == found


def test_private_names_of_the_package_are_rare_in_tests_and_each_has_its_reason() -> None:
    found, bare = [], []
    for path, tree in trees("tests"):
        lines = (ROOT / "tests" / path).read_text().splitlines()
        for line, name in private_names(tree):
            found.append(f"{path}:{line}: {name}")
            if "  # " not in lines[line - 1]:
                bare.append(found[-1])
    assert len(found) <= PRIVATE_NAMES, found
    assert bare == []


# --- what signatures say ---------------------------------------------------------------------


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
