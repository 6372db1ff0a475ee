"""Methods, networks and data sets of a user's own, from Python files that a suite names.

A plugin file defines subclasses of ``MethodPlugin``, ``NetworkPlugin`` or ``DatasetPlugin``. Each is the table of
options that a suite may write, with a ``kind`` of its own, and says how the thing is built. torch is best imported
inside the building methods: the options alone are read before anything runs. What it imports from its folder is part of
it (``bnpbench.suite.beside``); data files that it reads are named by the suite's ``reads``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union

from pydantic import BeforeValidator, Field

from bnpbench.errors import BnpbenchError, SuiteError
from bnpbench.suite.beside import Module, offer
from bnpbench.suite.options import SETTINGS, alternatives, kinds
from bnpbench.suite.settings import Settings
from bnpbench.suite.vocabulary import Labelled, Options, kind_or_table

if TYPE_CHECKING:
    from bnpbench.suite.data import DataShape


class MethodPlugin(Labelled):
    """A normalization.

    Attributes:
        position: after the activation (``post``) or before it (``pre``).
        preconditioned: whether BNP preconditions the gradient; needs BNP's options.
    """

    position: ClassVar[Literal["post", "pre"]] = "post"
    preconditioned: ClassVar[bool] = False

    def layer(self, features: int, spatial_dims: int, site: str) -> Any:
        """The module that normalizes (N, features, *spatial) after the layer named ``site``."""
        raise NotImplementedError(f"{type(self).__name__} defines no layer()")


class NetworkPlugin(Options):
    """A network."""

    def build(self, normalization: Any, input_shape: tuple[int, ...], classes: int) -> Any:
        """A module from (N, *input_shape) to (N, classes).

        Args:
            normalization: ``normalization.make(features, spatial_dims, site)`` gives the method's module, the identity
                for methods without one. Ask once for each place, by a ``site`` of its own such as ``"hidden1"``: behind
                the activation of that layer where ``normalization.position`` is ``"post"``, before it where it is
                ``"pre"``. It does not look where it is put: asked for at both, each layer would have two.
            input_shape: of one example.
            classes: outputs.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no build()")


class DatasetPlugin(Options):
    """A data set."""

    def shape(self) -> DataShape:
        """What is known of it before anything is loaded."""
        raise SuiteError(f"{type(self).__name__} defines no shape()")

    def load(self) -> Any:
        """Training examples (n, *shape) in float32 and labels (n,) in int64, then the same for the test.

        Four tensors with the numbers that ``shape`` says, labels from 0 to classes - 1; anything else is an error.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no load()")


SETTING_OF: dict[type[Options], str] = {MethodPlugin: "method", NetworkPlugin: "network", DatasetPlugin: "dataset"}
_BUILT_IN = {setting: SETTINGS[setting] for setting in SETTING_OF.values()}
_MODULE = "bnpbench_plugin_"  # begins the names of their modules
REGISTERED: dict[tuple[str, str], type[Options]] = {}
"""(setting, kind) → the plugin class that was loaded last."""


@dataclass(frozen=True)
class PluginFile:
    """A Python file, the SHA-256 of what was read from it, and the modules of its folder that it imports."""

    path: Path
    sha256: str
    modules: tuple[Module, ...] = ()

    @property
    def sums(self) -> set[str]:
        """The SHA-256 of the file and of each module."""
        return {self.sha256, *(module.sha256 for module in self.modules)}


def load_plugins(files: Sequence[PluginFile]) -> None:
    """Run the files and add what they define to the vocabulary.

    Raises:
        SuiteError: a file changed since it was hashed, does not run, or defines no plugin or a kind that exists.
    """
    offer(module for file in files for module in file.modules)
    for file in files:
        module = _run(file)
        classes = [c for c in vars(module).values() if _is_plugin(c) and c.__module__ == module.__name__]
        if not classes:
            names = ", ".join(base.__name__ for base in SETTING_OF)
            raise SuiteError(f"{file.path}: defines no subclass of {names}")
        for cls in classes:
            _register(file, cls)


def _is_plugin(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, tuple(SETTING_OF)) and candidate not in SETTING_OF


def _run(file: PluginFile) -> ModuleType:
    """The file as a module, run once for each content of it and of its modules.

    Its name lets other processes unpickle its classes.
    """
    name = f"{_MODULE}{hashlib.sha256(' '.join(sorted(file.sums)).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    content = file.path.read_bytes()
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise SuiteError(f"{file.path}: changed after the suite was loaded; run it again")
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
    """The place in a plugin that an error came from; None where it came from elsewhere."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if str(frame.f_globals.get("__name__")).startswith(_MODULE):
            return Place(Path(frame.f_code.co_filename), line, frame.f_code.co_qualname)
    return None


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


def _register(file: PluginFile, cls: type[Options]) -> None:
    setting = next(name for base, name in SETTING_OF.items() if issubclass(cls, base))
    own = tuple(kinds(cls)) if "kind" in cls.model_fields else ()
    if not own:
        raise SuiteError(f'{file.path}: {cls.__name__} needs a kind, such as kind: Literal["{cls.__name__.lower()}"]')
    for kind in own:
        if kind in kinds(_BUILT_IN[setting]):
            raise SuiteError(f"{file.path}: {cls.__name__}: {kind!r} is a {setting} of bnpbench; choose another kind")
        REGISTERED[setting, kind] = cls
    theirs = dict.fromkeys(model for (place, _), model in REGISTERED.items() if place == setting)
    members: Any = Union[(*alternatives(_BUILT_IN[setting]), *theirs)]
    SETTINGS[setting] = Annotated[members, Field(discriminator="kind"), BeforeValidator(kind_or_table)]
    Settings.model_fields[setting].annotation = members
    Settings.model_rebuild(force=True)
