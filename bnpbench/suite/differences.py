"""In which settings cells differ, and which of these tell them apart."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from bnpbench.suite.settings import FACTS, Fact

_REPEATED = 5  # equal values in a list, before it is written short


def differing(cells: Sequence[Mapping[str, Any]], apart: Sequence[str]) -> dict[str, list[Any]]:
    """Dotted setting to what each cell has there, for the settings that vary.

    Args:
        cells: the settings of each.
        apart: names of settings that are not looked at.
    """
    found: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for cell in cells for name in cell if name not in apart):
        names = [repr(cell.get(name)) for cell in cells]
        distinct = {text: cell.get(name) for text, cell in zip(names, cells, strict=True)}
        if len(distinct) == 1:
            continue
        paths = dict.fromkeys(path for value in distinct.values() for path in _paths(name, value))
        tables = {path.rpartition(".")[0] for path in paths}
        for path in paths:
            if path not in tables:  # another cell's value may be empty where this one's is a table
                values = {text: setting({name: value}, path) for text, value in distinct.items()}
                if len(set(map(repr, values.values()))) > 1:
                    found[path] = [values[text] for text in names]
    return found


def telling(identities: Sequence[Hashable], settings: Mapping[str, Sequence[Any]]) -> list[str]:
    """As few of the settings as tell apart what all of them do, among cells that are otherwise alike.

    What a reader expects in a heading is dropped last, and of a part's options its kind. A setting that follows from
    the identities (a learning rate that is overridden by batch size) tells nothing apart.

    Args:
        identities: what else each cell is known by.
        settings: as ``differing`` gives them.
    """
    columns = {path: list(map(repr, values)) for path, values in settings.items()}

    def tells(chosen: Iterable[str]) -> int:
        return len(set(zip(identities, *(columns[path] for path in chosen), strict=True)))

    paths = list(columns)
    whole = tells(paths)
    for path in sorted(paths, key=_expected):
        rest = [other for other in paths if other != path]
        if tells(rest) == whole:
            paths = rest
    return paths


def _expected(path: str) -> tuple[int, bool]:
    """How much a reader expects a setting in a heading."""
    return FACTS.get(path.split(".")[0], Fact()).heading, path.endswith(".kind")


def heading(path: str, value: object) -> str:
    """A setting in a heading: ``lr = 0.1``; a data set or a network by its name alone."""
    return told(value) if path.endswith(".kind") else f"{path} = {told(value)}"


def setting(cell: Mapping[str, Any], path: str) -> Any:
    """One of a cell's settings by its dotted name; None where it has none."""
    value: Any = cell
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def told(value: object) -> str:
    """A setting as text; a table of nothing but its kind is that kind, ``[32] * 8`` a list of eight times 32."""
    if isinstance(value, dict):
        given = {name: item for name, item in value.items() if item is not None}
        inner = ", ".join(f"{name} = {told(item)}" for name, item in given.items())
        return str(given["kind"]) if list(given) == ["kind"] else f"{{{inner}}}"
    if isinstance(value, list | tuple):
        if len(value) >= _REPEATED and all(item == value[0] for item in value):
            return f"[{told(value[0])}] * {len(value)}"
        return f"[{', '.join(map(told, value))}]"
    return str(value).lower() if isinstance(value, bool | None) else str(value)


def _paths(name: str, value: object) -> Iterable[str]:
    if isinstance(value, dict) and value:
        for inner, item in value.items():
            yield from _paths(f"{name}.{inner}", item)
    else:
        yield name
