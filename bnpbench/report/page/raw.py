"""Links from the page to the Parquet files it was made from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from bnpbench.cache import expanded
from bnpbench.report.view import View
from bnpbench.results.schema import SCHEMAS

_MOST_CELLS = 1000  # with more, only the folders are linked


@dataclass(frozen=True)
class Raw:
    """The measured cells of one suite and environment, with their files.

    Attributes:
        columns, rows: a table of them.
        links: for each row the name and relative address of each file.
        merged: files that hold many cells, and folders.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    links: tuple[tuple[tuple[str, str], ...], ...] = ()
    merged: tuple[tuple[str, str], ...] = ()


def raw_files(view: View, folders: Sequence[Path], base: Path) -> Raw:
    """What to link to; nothing where the way from the page to the files would name a home directory."""
    places = [place for folder in folders for place in _places(view, folder)]
    addressed = [(place, address) for place in places if (address := _address(place, base)) is not None]
    if not addressed:
        return Raw()
    cells = [cell for cell in (*view.cells, *view.trials, *view.strays) if cell.row]
    merged = [
        (f"{kind}.parquet", f"{address}/{kind}.parquet")
        for place, address in addressed
        for kind in SCHEMAS
        if (place / f"{kind}.parquet").is_file()
    ]
    if len(cells) > _MOST_CELLS:
        return Raw(merged=tuple(merged + [("folder of all files", f"{address}/") for _, address in addressed]))
    there = {
        (kind, name.removesuffix(".parquet")): f"{address}/{kind}/{name}"
        for place, address in addressed
        for kind in SCHEMAS
        for name in _listed(place / kind)
    }
    return Raw(
        ("method", "N", "seed", "status", "key"),
        tuple((cell.label, str(cell.batch_size), str(cell.seed), cell.status, cell.key) for cell in cells),
        tuple(tuple((kind, there[kind, cell.key]) for kind in SCHEMAS if (kind, cell.key) in there) for cell in cells),
        tuple(merged),
    )


def _places(view: View, folder: Path) -> Iterable[Path]:
    """The environment's folder, in a folder of suites or in the suite's own."""
    for suite in (folder, folder / quote(view.suite, safe=" +=,")):
        if unquote(suite.resolve().name) == view.suite and (place := suite / str(view.environment["id"])).is_dir():
            yield place


def _address(place: Path, base: Path) -> str | None:
    here, there, home = base.resolve(), place.resolve(), expanded("~")
    shared = Path(os.path.commonpath([here, there]))
    if shared != home and home.is_relative_to(shared):
        return None  # a user's name would stand in the page
    return quote(Path(os.path.relpath(there, here)).as_posix(), safe="/.")


def _listed(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(name for name in os.listdir(folder) if name.endswith(".parquet") and not name.startswith("."))
