"""The two scripts of the page, from the wheels that ship them, and their licences."""

from __future__ import annotations

import base64
import gzip
import re
from functools import cache
from importlib.metadata import distribution
from importlib.resources import files

_SCRIPTS = {
    "plotly": ("plotly", "package_data/plotly.min.js"),
    "tables": ("itables", "html/dt_bundle.js"),
}
_NOTICE = re.compile(r"/\*[!*](?:(?!\*/).){0,20000}?\*/", re.DOTALL)


@cache
def packed_scripts() -> dict[str, str]:
    """Name to script, gzipped and in base64: a third of its size, and no tag can end it early."""
    return {name: base64.b64encode(gzip.compress(_source(name).encode(), 9, mtime=0)).decode() for name in _SCRIPTS}


@cache
def licences() -> tuple[tuple[str, str], ...]:
    """Package and version, and the text of its licence with the notices that stand in its script."""
    found = []
    for name, (package, _) in _SCRIPTS.items():
        installed = distribution(package)
        texts = [
            path.read_text(encoding="utf-8")
            for path in installed.files or ()
            if ".dist-info" in str(path) and "LICEN" in path.name.upper()
        ]
        notices = [note for note in _NOTICE.findall(_source(name)) if re.search("licen[cs]e", note, re.IGNORECASE)]
        found.append((f"{package} {installed.version}", "\n\n".join([*texts, *notices]).replace("\\n", "\n")))
    return tuple(found)


@cache
def _source(name: str) -> str:
    package, path = _SCRIPTS[name]
    return files(package).joinpath(path).read_text(encoding="utf-8")
