"""Figures as files: legible, and nothing but themselves."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.text
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from bnpbench.report.data import views
from bnpbench.report.figures import figures, inks
from bnpbench.report.render.drawing import canvas, style, write_figures
from bnpbench.results import Results
from tests.support.made_results import Made, epochs

METHODS = ("vanilla", "bn", "bnp", "ln", "renorm", "gn", "4things", "bnp+gn", "bn-pre")
HOSTILE = r"bn $\frac{x}{0}$ <script>alert(1)</script> 批归一化 %s \n{} " + "x" * 90
SIZES = (1, 2, 3, 4, 6, 60, 128)


def crowded(make: Callable[..., Made]) -> Results:
    """Nine methods and a hostile label, eight batch sizes, three seeds, claims of every outcome, condition numbers."""
    made = make(name="crowded")
    made.document["shortened"] = {"epochs": 7}
    keys: dict[tuple[str, int], list[str]] = {}
    for size, seed, (rank, method) in itertools.product(SIZES, (1, 2, 3), enumerate((*METHODS, "bn"))):
        label = HOSTILE if rank == len(METHODS) else method
        alone = {"settings": {"method": {"kind": method, "eps": 0.5}}} if label == HOSTILE else {}
        if method == "bn" and size == 1:
            made.cell(method, size, seed, label=label, status="not-applicable", **alone)
            continue
        rows = epochs(
            [0.5 + 0.1 * rank + 0.01 * seed + size / 100] * 7,
            [1 - 0.9 / (e + rank + seed / 9) for e in range(1, 8)],
            train_loss=[2.3 * math.exp(-e * (rank + 1) / 8) + seed / 1e3 for e in range(1, 8)],
            steps=[100] * 7,
        )
        counts = {"bn": 38_400 * size + 4000, "bnp": 2_000_000 + 12_000 * size}.get(method, 0)
        steps = [
            {
                "epoch": 1 + i // 100,
                "step": 1 + i,
                "layer": "output",
                "neuron": 0,
                "preconditioner": kind,
                "kappa_hessian": 1e9 * (1 + i % 7),
                "kappa_preconditioned": 1e4 * (1 + (i + seed) % 5),
                "kappa_d": 300.0 + i,
            }
            for i in range(200)
            for kind in ("batch", "batch_damped", "running_damped")
            if method in ("vanilla", "bnp") and size == 60
        ]
        flops = {"flops_method_predicted": counts, "flops_method_counted": counts // 2 if method == "bn" else counts}
        key = made.cell(method, size, seed, rows, steps=steps, label=label, **flops, **alone)
        keys.setdefault((label, size), []).append(key)
    long = "a claim in so many words that no figure has room for all of them, " * 9
    for size in SIZES[1:]:
        bn, bnp = keys["bn", size], keys["bnp", size]
        made.claim("test_accuracy", "difference", bnp, bn, at_least=0.0, where={"batch_size": size}, says=long)
        made.claim("train_seconds", "ratio", bnp, bn, at_most=1.0, where={"batch_size": size}, says=HOSTILE)
    made.claim("seconds_to", "value", keys["vanilla", 60], target=0.99, at_most=10, says="never gets there")
    made.claim("reached", "value", keys["bnp", 60], target=0.5, at_least=1, says="all get there")
    made.claim("test_accuracy", "value", keys["bn", 60][:1], at_least=0.5, says="one seed")
    made.claim("test_accuracy", "value", ["0" * 12], at_least=0.5, says="nothing")
    return made.read()


@pytest.fixture
def drawn_texts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Every text that the renderer draws, with its box in pixels."""
    found: list[tuple[str, Any]] = []
    draw = matplotlib.text.Text.draw

    def recording(self: matplotlib.text.Text, renderer: Any, *rest: Any, **more: Any) -> None:
        if self.get_visible() and self.get_text().strip():
            found.append((self.get_text(), self.get_window_extent(renderer)))
        draw(self, renderer, *rest, **more)

    monkeypatch.setattr(matplotlib.text.Text, "draw", recording)
    return found


def check_layout(results: Results, found: list[tuple[str, Any]]) -> int:
    seen = views(results)
    colours = inks(seen)
    everything = figures(seen)
    for figure in everything:
        with style(figure.name):
            drawn = canvas(figure, colours)
            assert isinstance(drawn.canvas, FigureCanvasAgg)
            found.clear()  # laying out draws too
            drawn.canvas.draw()
            width, height = drawn.bbox.width, drawn.bbox.height
            assert found, figure.name
            for text, box in found:
                inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
                assert inside, (figure.name, text, box, width, height)
            for (one, box), (other, second) in itertools.combinations(found, 2):
                apart = (
                    box.x1 <= second.x0 + 1
                    or second.x1 <= box.x0 + 1
                    or box.y1 <= second.y0 + 1
                    or second.y1 <= box.y0 + 1
                )
                assert apart, (figure.name, one, other, box, second)
            for axes in drawn.axes:
                assert axes.lines or axes.collections, (figure.name, "an empty panel")
                assert axes.bbox.width > 60, figure.name
                assert axes.bbox.height > 20, figure.name
    return len(everything)


def test_texts_stay_apart_and_inside(make: Callable[..., Made], drawn_texts: list[tuple[str, Any]]) -> None:
    assert check_layout(crowded(make), drawn_texts) >= 8


def test_texts_of_a_small_suite(make: Callable[..., Made], drawn_texts: list[tuple[str, Any]]) -> None:
    """One batch size, one seed, two epochs: nothing has a spread."""
    made = make()
    for method in ("vanilla", "bnp"):
        made.cell(method, 16, 1, epochs([1.0, 1.0], [0.5, 0.6], train_loss=[1.0, 0.9], steps=[10, 10]))
    assert check_layout(made.read(), drawn_texts) == 3


def test_same_bytes(make: Callable[..., Made], tmp_path: Path) -> None:
    made = make()
    for method in ("vanilla", "bn", "bnp"):
        for size in (16, 64):
            rows = epochs([1.0, 1.1, 1.2], [0.5, 0.6, 0.7], train_loss=[1.0, 0.9, 0.8], steps=[10] * 3)
            made.cell(method, size, 1, rows, flops_method_predicted=1000 * size)
    results = made.read()
    first, second = (write_figures(results, tmp_path / name) for name in "ab")
    assert [path.name for path in first] == [path.name for path in second]
    assert {path.suffix for path in first} == {".svg", ".pdf", ".png", ".txt"}
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(path.name for path in first)


def test_figures_are_written_through_no_link(make: Callable[..., Made], tmp_path: Path) -> None:
    """The folder may be a stranger's, and so may be the links in it."""
    made = make()
    made.cell("bn", 16, 1, epochs([1.0] * 3, [0.5] * 3, train_loss=[1.0, 0.9, 0.8]))
    treasure, folder = tmp_path / "treasure", tmp_path / "figures"
    treasure.write_text("dear")
    for path in write_figures(made.read(), folder):
        path.unlink()
        path.symlink_to(treasure)
        (folder / f".{path.stem}.tmp").unlink(missing_ok=True)
        (folder / f".{path.stem}.tmp").symlink_to(treasure)
    assert not any(path.is_symlink() for path in write_figures(made.read(), folder))
    assert treasure.read_text() == "dear"


def test_a_caption_lies_beside_each_figure(make: Callable[..., Made], tmp_path: Path) -> None:
    """With what is not in the picture: the environment, the software."""
    made = make()
    for method in ("vanilla", "bnp"):
        made.cell(method, 16, 1, epochs([1.0] * 3, [0.5] * 3, train_loss=[1.0, 0.9, 0.8], steps=[10] * 3))
    results = made.read()
    written = write_figures(results, tmp_path)
    captions = {path.stem: path.read_text(encoding="utf-8") for path in written if path.suffix == ".txt"}
    drawn = figures(views(results))
    assert list(captions) == [figure.name for figure in drawn]
    for figure in drawn:
        lines = captions[figure.name].splitlines()
        assert lines[0] == figure.title
        assert lines[1 : 1 + len(figure.notes)] == [*figure.notes]
        assert {"suite: made", "source: a fake clock", f"environment: {made.environment['id']}"} <= {*lines}
        assert any(line.startswith("machine: cpu Made-up CPU") for line in lines)
        assert not any(made.environment["id"] in text for text in (figure.title, *figure.notes))


def test_bands_bars_and_crosses_are_named_in_the_legend(make: Callable[..., Made]) -> None:
    made = make()
    for size, seed, method in itertools.product((16, 64), (1, 2, 3), ("vanilla", "bnp")):
        rows = epochs(
            [1.0 + seed * len(method) / 10] * 3, [0.5 + seed / 100] * 3, train_loss=[1.0, 0.9, 0.8], steps=[10] * 3
        )
        made.cell(method, size, seed, rows)
    seen = views(made.read())
    legends = {}
    for figure in figures(seen):
        with style(figure.name):
            (legend,) = canvas(figure, inks(seen)).legends
        legends[figure.kind] = [text.get_text() for text in legend.get_texts()]
    assert legends["cost-and-gain"] == ["vanilla (baseline)", "bnp", "95 % intervals"]
    assert legends["training"] == ["vanilla", "bnp", "range over 3 seeds"]
    assert legends["step-time"][-1] == "95 % interval"


def test_svg_needs_nothing_else(make: Callable[..., Made], tmp_path: Path) -> None:
    """No font, no image, no script from elsewhere; nothing of the label is markup."""
    made = make()
    made.cell("bn", 16, 1, epochs([1.0] * 3, [0.5] * 3, train_loss=[1.0, 0.9, 0.8]), label=HOSTILE)
    for path in write_figures(made.read(), tmp_path):
        if path.suffix == ".svg":
            text = path.read_text(encoding="utf-8")
            assert "<script" not in text
            assert "<text" not in text
            assert "font-family" not in text
            assert not re.findall(r"(?:href|src)=\"(?!#)", text)
            assert "<dc:date>" not in text


def test_an_only_epoch_stands_at_a_whole_number(make: Callable[..., Made]) -> None:
    made = make()
    made.cell("bnp", 16, 1, epochs([0.5] * 3, [0.4] * 3, train_loss=[1.5] * 3))
    made.cell("bnp", 1, 1, epochs([0.5], [0.4], train_loss=[1.5]))
    seen = views(made.read())
    figure = next(figure for figure in figures(seen) if figure.name.endswith("training"))
    with style(figure.name):
        drawn = canvas(figure, inks(seen))
        drawn.canvas.draw()
        ticks = {float(tick) for axes in drawn.axes for tick in axes.get_xticks()}
    assert 1.0 in ticks
    assert all(tick.is_integer() for tick in ticks)


def test_nothing_to_draw(make: Callable[..., Made], tmp_path: Path) -> None:
    made = make()
    made.cell("bn", 1, status="not-applicable")
    made.cell("bnp", 1)
    assert write_figures(made.read(), tmp_path / "figures") == []
