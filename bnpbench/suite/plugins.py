"""Methods, networks, data sets, ... of a user's own, from Python files that a suite names.

A plugin file defines subclasses of ``MethodPlugin``, ``NetworkPlugin``, ``DatasetPlugin``, ... (``bnpbench.registry``).
Each is the table of options that a suite may write, with a ``kind`` of its own, and says what the thing does.
What it imports from its folder is part of it; data files that it reads are named by the
suite's ``reads``.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from bnpbench.datasets.base import DatasetPlugin
from bnpbench.errors import BnpbenchError, Origin, SuiteError
from bnpbench.fields import Kinded
from bnpbench.methods.base import MethodPlugin
from bnpbench.metrics.base import MetricPlugin
from bnpbench.networks.base import NetworkPlugin
from bnpbench.networks.imported import admit, admitted
from bnpbench.networks.library import LibraryNetwork
from bnpbench.registry import BASES, Registry, built_in, kinded


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
    """Let these modules be imported, where Python finds none of their name; those offered before are forgotten.

    Where all of those are offered again, unchanged, they stay as they were imported.
    """
    offered = {module.name: module for module in modules}
    if not _OFFERED.modules.items() <= offered.items():
        for name in _OFFERED.modules:
            if getattr(sys.modules.get(name), "__loader__", None) is _OFFERED:
                del sys.modules[name]
    _OFFERED.modules = offered
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


def module_file(name: str, folders: Iterable[Path]) -> PluginFile | None:
    """The module of a dotted name that is installed, else the one in a folder; None where there is none.

    Nothing of it is run. One of a folder comes with what it imports from there. An installed one is hashed with all
    Python files of its package; what it imports from other packages is not looked at.

    Raises:
        OSError: it cannot be read.
    """
    path = _installed(name)
    if path is not None:
        return PluginFile(path, _sum_of_package(name.partition(".")[0], path), module=name)
    for folder in folders:
        modules = imported(f"import {name}".encode(), folder)
        for module in modules:
            if module.name == name and module.path.is_file():
                return PluginFile(module.path, module.sha256, modules, module=name)
    return None


def names_in(file: PluginFile) -> set[str] | None:
    """What a module defines or imports at its top, by its text; None where that does not show all.

    Args:
        file: of the module.

    Raises:
        OSError: it cannot be read.
    """
    try:
        tree = ast.parse(file.path.read_bytes())
    except (SyntaxError, ValueError):
        return None  # running it says where
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    return None if found & {"*", "__getattr__"} or file.path.name == "__init__.py" else found


def _sum_of_package(top: str, path: Path) -> str:
    """SHA-256 of an installed module: of its file where it is no package's, else of its whole package too."""
    text = path.read_bytes()
    spec = importlib.util.find_spec(top)
    folders = spec and spec.submodule_search_locations
    if not folders:
        return hashlib.sha256(text).hexdigest()
    told = [hashlib.sha256(text).hexdigest()]
    networks = built_in().kinds(NetworkPlugin).values()
    if top in {"torch", *(one.library for one in networks if issubclass(one, LibraryNetwork))}:
        # thousands of files, which their version tells apart
        told.append(f"{top} {version(top)}")
    else:
        for folder in map(Path, folders):
            sums = ((file, hashlib.sha256(file.read_bytes()).hexdigest()) for file in sorted(folder.rglob("*.py")))
            told += (f"{file.relative_to(folder).as_posix()} {found}" for file, found in sums)
    return hashlib.sha256("\n".join(told).encode(errors="surrogateescape")).hexdigest()


def _installed(name: str) -> Path | None:
    top, _, rest = name.partition(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # of a module without a spec
        return None
    if spec is None or spec.loader is _OFFERED:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin and spec.has_location else None
    found = (_file(Path(folder).resolve(), rest) for folder in spec.submodule_search_locations or ())
    return next((path for path in found if path is not None and path.is_file()), None)


_MODULE = "bnpbench_plugin_"  # begins the names of their modules


@dataclass(frozen=True)
class PluginFile:
    """A Python file that a suite names.

    Attributes:
        path: of the file.
        sha256: of what was read from it.
        modules: of its folder, that it imports.
        module: the name by which a network is imported from it; None for a file that is run for the kinds it defines.
    """

    path: Path
    sha256: str
    modules: tuple[Module, ...] = ()
    module: str | None = None

    @property
    def sums(self) -> set[str]:
        """The SHA-256 of the file and of each module."""
        return {self.sha256, *(module.sha256 for module in self.modules)}


def load_plugins(files: Sequence[PluginFile]) -> Registry:
    """Run the files; what ships with bnpbench and what they define.

    Raises:
        SuiteError: a file changed since it was hashed, does not run, or defines no plugin or a kind that exists.
    """
    offer(module for file in files for module in file.modules)
    admit(file.module for file in files if file.module is not None)
    registry = built_in()
    for file in files:
        if file.module is not None:
            continue
        classes = kinded(_run(file))
        names = ", ".join(base.__name__ for base in BASES)
        if not classes:
            raise SuiteError(f"defines no subclass of {names}", file=file.path)
        for cls in classes:
            try:
                _check(cls)
                registry = registry.plus([cls])
            except SuiteError as error:
                raise error.at(Origin(file.path, _line(file, cls))) from None
    return registry


def _check(cls: type[Kinded]) -> None:
    """Raises SuiteError for a plugin that does nothing, or does not say what it is."""
    if issubclass(cls, MethodPlugin) and cls.does_nothing():
        raise SuiteError(
            f"{cls.__name__} defines no layer(), preconditioner(), decays() or finish(): "
            "it would be a network without a method under another name"
        )
    if issubclass(cls, MetricPlugin) and (fault := cls.fault()):
        raise SuiteError(f"{cls.__name__} {fault}")
    if issubclass(cls, DatasetPlugin) and cls.describe is DatasetPlugin.describe:
        raise SuiteError(f"{cls.__name__} defines no describe()")


def _line(file: PluginFile, cls: type[Kinded]) -> int | None:
    """The line of a class; None where its file does not show it."""
    classes = (node for node in ast.walk(ast.parse(file.path.read_bytes())) if isinstance(node, ast.ClassDef))
    return next((node.lineno for node in classes if node.name == cls.__name__), None)


def _run(file: PluginFile) -> ModuleType:
    """The file as a module, run once for each content of it and of its modules.

    Its name lets other processes unpickle its classes.
    """
    name = f"{_MODULE}{hashlib.sha256(' '.join(sorted(file.sums)).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    content = file.path.read_bytes()
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise SuiteError("changed after the suite was loaded; run it again", file=file.path)
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(file.path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file.path)  # by which it finds its data
    sys.modules[name] = module
    try:
        exec(compile(content, str(file.path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        place = place_of(error)
        line = error.lineno if isinstance(error, SyntaxError) else None if place is None else place.line
        raise SuiteError(f"does not run: {type(error).__name__}: {error}", file=file.path, line=line) from error
    return module


@dataclass(frozen=True)
class Place:
    """Where an error came from in a plugin: file, line, and the function's name."""

    file: Path
    line: int
    function: str


def place_of(error: BaseException) -> Place | None:
    """The place in a suite's own code that an error, or what it was raised from, came from; None for code elsewhere."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        name = str(frame.f_globals.get("__name__"))
        if name.startswith(_MODULE) or name in _OFFERED.modules or admitted(name):
            return Place(Path(frame.f_code.co_filename), line, frame.f_code.co_qualname)
    return None if error.__cause__ is None else place_of(error.__cause__)


@contextmanager
def plugins_answer() -> Iterator[None]:
    """Turns an error out of a plugin's code into a SuiteError that names file, line and function."""
    try:
        yield
    except BnpbenchError:
        raise
    except Exception as error:
        if (place := place_of(error)) is None:
            raise
        told = f"{place.function} raised {type(error).__name__}: {error}"
        raise SuiteError(told, file=place.file, line=place.line) from error
