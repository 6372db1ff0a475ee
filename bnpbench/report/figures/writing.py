"""Figures as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from bnpbench.errors import BnpbenchError
from bnpbench.files import fresh
from bnpbench.report.figures.drawing import DPI, draw, style
from bnpbench.report.figures.forest_drawing import draw_forest
from bnpbench.report.figures.gather import figures
from bnpbench.report.figures.model import Figure
from bnpbench.report.figures.palette import Ink, inks
from bnpbench.report.view import views
from bnpbench.results import Results


def write_figures(results: Results, folder: Path) -> list[Path]:
    """Writes every figure of the results as SVG and PNG, and returns the files; others in the folder stay.

    Raises:
        BnpbenchError: the folder cannot be written.
    """
    seen = views(results)
    colours = inks(seen)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [path for figure in figures(seen) for path in _write(figure, colours, folder)]
    except OSError as error:
        raise BnpbenchError(f"--figures {folder}: cannot be written ({error.strerror or error})") from error


def canvas(figure: Figure, colours: Mapping[str, Ink]) -> Canvas:
    """The figure as matplotlib has it, under the figures' style."""
    return draw_forest(figure) if figure.kind == "claims" else draw(figure, colours)


def _write(figure: Figure, colours: Mapping[str, Ink], folder: Path) -> list[Path]:
    with style(figure.name):
        drawn = canvas(figure, colours)
        title = f"{figure.suite}: {figure.title}"
        files = {
            "svg": {"Date": None, "Creator": "bnpbench", "Title": title, "Description": " ".join(figure.notes)},
            "png": {"Software": None, "Title": title},
        }
        paths = []
        for extension, metadata in files.items():
            path = folder / f"{figure.name}.{extension}"
            temporary = fresh(folder / f".{figure.name}.tmp")
            drawn.savefig(temporary, format=extension, dpi=DPI, metadata=metadata)
            temporary.replace(path)
            paths.append(path)
    return paths
