"""What a plugin imports from its own folder: found in its text, hashed with it, and importable in every process."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Module:
    """A module of the suite's folder; it travels with its text, so that what is run is what was hashed.

    Attributes:
        name: dotted.
        path: its file.
        text: what stands in it.
    """

    name: str
    path: Path
    text: bytes

    @property
    def sha256(self) -> str:
        """Of its name and its text: one that is renamed is another."""
        return hashlib.sha256(self.name.encode() + b"\0" + self.text).hexdigest()

    @property
    def is_package(self) -> bool:
        """Whether others may lie in it."""
        return self.path.name == "__init__.py"


def imported(text: bytes, folder: Path) -> tuple[Module, ...]:
    """The modules of ``folder`` that a plugin's text imports, wherever in it, and those that they import.

    Imports by a name that is not written down (``importlib.import_module``) are not seen.

    Raises:
        OSError: one cannot be read.
    """
    found: dict[str, Module] = {}
    texts = [("", text)]
    while texts:
        package, text = texts.pop()
        for name in _names(text, package):
            for end in range(1, name.count(".") + 2):  # a.b.c runs a, then a.b
                part = ".".join(name.split(".")[:end])
                path = None if part in found else _file(folder, part)
                if path is not None:
                    text = path.read_bytes() if path.is_file() else b""
                    found[part] = module = Module(part, path, text)
                    texts.append((part if module.is_package else part.rpartition(".")[0], module.text))
    return tuple(found[name] for name in sorted(found))


def offer(modules: Iterable[Module]) -> None:
    """Let these modules be imported, where Python finds none of their name; those offered before are forgotten."""
    for name in _OFFERED.modules:
        if getattr(sys.modules.get(name), "__loader__", None) is _OFFERED:
            del sys.modules[name]
    _OFFERED.modules = {module.name: module for module in modules}
    if _OFFERED not in sys.meta_path:
        sys.meta_path.append(_OFFERED)  # last: no name of an installed package is taken over


class _Offered(MetaPathFinder, Loader):
    """Finds the modules that are offered, and runs their text."""

    def __init__(self) -> None:
        self.modules: dict[str, Module] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = self.modules.get(fullname)
        if module is None:
            return None
        spec = importlib.util.spec_from_loader(fullname, self, origin=str(module.path), is_package=module.is_package)
        if spec is not None:
            spec.has_location = True  # gives it a __file__
        return spec

    def exec_module(self, module: ModuleType) -> None:
        known = self.modules[module.__name__]
        exec(compile(known.text, str(known.path), "exec"), module.__dict__)


_OFFERED = _Offered()


def _names(text: bytes, package: str) -> Iterator[str]:
    """Every module that a text's import statements may mean; none of a text that does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # running it tells
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join(filter(None, [*parents, node.module]))
            yield from filter(None, (base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)))


def _file(folder: Path, name: str) -> Path | None:
    """The module's file inside ``folder``, if there is one; a folder is a package even where it has no such file."""
    path = folder.joinpath(*name.split("."))
    package, file = path / "__init__.py", path.with_name(f"{path.name}.py")
    found = package if package.is_file() else file if file.is_file() else package if path.is_dir() else None
    return found if found is not None and found.resolve().is_relative_to(folder) else None
