"""The page in headless Chromium: what a reader can do with it, by mouse, keyboard, paper and telephone."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bnpbench.report.render.page import render_page
from bnpbench.results import read_results
from tests.support.made_results import Made, epochs

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MEASURED = Path(__file__).parents[2] / "unchanged" / "measured"
HOSTILE = "</script><b>bold</b> $x^2$ %{y} <img src=x onerror=document.title='owned'>"
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect  # waits: a table draws itself some time after it was asked to
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        "BNPBENCH_BROWSER" not in os.environ, reason="BNPBENCH_BROWSER is not set: needs an idle machine"
    ),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the PATH"),
]


class Opened:
    """A page in a browser, with all that it asked for and complained about."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def settle(self, condition: str) -> None:
        """Waits until a condition in JavaScript holds; the page's own policy forbids it to evaluate texts."""
        deadline = time.monotonic() + 30
        while not self.page.evaluate(condition):
            assert time.monotonic() < deadline, condition
            self.page.wait_for_timeout(50)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("browser")
    with sync_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder, executable_path=CHROMIUM, args=FLAGS, viewport={"width": 1100, "height": 800}
        )
        yield context
        context.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with every kind of figure, a table of more than five rows, and a label that is an attack."""
    made = Made(tmp_path_factory.mktemp("page") / "results")
    labels = {"vanilla": "vanilla", "bn": "bn", "bnp": "bnp", "ln": HOSTILE}
    keys: dict[tuple[str, int], list[str]] = {}
    for size in (16, 64):
        for seed in (1, 2):
            for rank, method in enumerate(labels):
                rows = epochs(
                    [0.5 + rank / 10 + seed / 100] * 6,
                    [1 - (rank + seed) / (9 * e) for e in range(1, 7)],
                    train_loss=[(1 + rank) * 0.5**e for e in range(6)],
                    steps=[100] * 6,
                )
                steps = [
                    {
                        "epoch": 1,
                        "step": n,
                        "layer": "output",
                        "neuron": 0,
                        "preconditioner": "batch",
                        "kappa_hessian": 1e6 * n,
                        "kappa_preconditioned": 1e3 * n,
                        "kappa_d": 50.0 * n,
                    }
                    for n in range(1, 9)
                ]
                flops = {"bn": 1000 * size, "bnp": 30_000}.get(method, 0)
                key = made.cell(
                    method, size, seed, rows, steps=steps, label=labels[method], flops_method_predicted=flops
                )
                keys.setdefault((method, size), []).append(key)
        made.claim("train_seconds", "ratio", keys["bnp", size], keys["bn", size], at_most=1.0, says=HOSTILE)
        made.claim("test_accuracy", "value", keys["bn", size], at_least=0.1, says="above a tenth")
    made.document["targets"] = [0.5]
    path = made.out.parent / "page.html"
    path.write_text(render_page(made.read(), [made.out], path.parent), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def opened(browser: Any, address: str) -> Iterator[Opened]:
    found = Opened(browser.new_page())
    found.page.goto(address)
    found.settle("document.documentElement.dataset.ready === 'true'")
    found.page.locator("details.fold").evaluate_all("all => all.forEach(one => { one.open = true; })")
    yield found
    found.page.close()
    assert found.complaints == []
    assert [url[:5] for url in found.requests if not url.startswith("blob:")] == ["file:"]


def accuracy_table(page: Any) -> Any:
    return page.locator("table.sortable", has=page.locator("caption", has_text="Test accuracy")).first


def of_title(page: Any, words: str) -> Any:
    return page.locator("figure", has=page.locator("figcaption", has_text=words))


def column(table: Any, place: int) -> Any:
    return table.locator(f"tbody tr > :nth-child({place})")


def test_all_figures_are_drawn(opened: Opened) -> None:
    page = opened.page
    captions = page.locator("figcaption").all_inner_texts()
    assert len(captions) == len(set(captions)) == 9
    empty = page.evaluate(
        "[...document.querySelectorAll('.panels > div')].filter(d => !d.querySelector('.main-svg')).length"
    )
    assert empty == 0
    assert page.locator(".panels > div .scatterlayer .trace").count() > 20
    assert page.title().startswith("bnpbench report")


def test_what_a_target_takes_has_its_front_and_its_numbers(opened: Opened) -> None:
    figure = of_title(opened.page, "What it takes to reach test accuracy 0.5")
    assert figure.locator(".panels .main-svg").count() > 0
    assert "front" in figure.locator(".legend").inner_text()
    assert "baseline" not in figure.locator(".legend").inner_text()
    figure.locator(".numbers summary").click()
    table = figure.locator(".numbers table")
    expect(table.locator("tbody tr").first).to_contain_text("seconds a step")
    figure.locator(".numbers summary").click()


def test_tables_sort_by_mouse_and_keyboard(opened: Opened) -> None:
    table = accuracy_table(opened.page)
    heading = table.locator("thead th").nth(1)
    expect(column(table, 2)).to_have_text(["16"] * 4 + ["64"] * 4)
    heading.locator(".dt-column-title").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    heading.locator("[role=button]").focus()
    opened.page.keyboard.press("Enter")
    expect(heading).to_have_attribute("aria-sort", "descending")
    expect(column(table, 2)).to_have_text(["64"] * 4 + ["16"] * 4)
    numbers = table.locator("thead th").nth(2)
    numbers.locator(".dt-column-title").click()
    expect(numbers).to_have_attribute("aria-sort", "ascending")
    values = [float(text.split()[0]) for text in column(table, 3).all_inner_texts()]
    assert values == sorted(values)
    assert len(set(values)) > 2
    heading.locator(".dt-column-title").click()  # by batch size again


def test_tables_filter(opened: Opened) -> None:
    table = accuracy_table(opened.page)
    field = opened.page.get_by_label("Filter the table: Test accuracy")
    field.fill("bnp")
    expect(column(table, 1)).to_have_text(["bnp", "bnp"])
    field.fill("no such method")
    expect(column(table, 1)).to_have_text(["no row holds these words"])
    field.fill("")
    expect(column(table, 1)).to_have_count(8)


def test_values_on_hover(opened: Opened) -> None:
    page = opened.page
    figure = of_title(page, "Time of a step")
    point = figure.locator(".scatterlayer .trace .points path").first
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 - 30, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    label = figure.locator(".hoverlayer .hovertext")
    label.wait_for(timeout=10_000)
    words = label.text_content()
    assert "vanilla" in words
    assert "batch size 16" in words


def test_labels_from_files_are_only_letters(opened: Opened) -> None:
    page = opened.page
    assert page.locator("img").count() == 0
    assert page.locator("b", has_text="bold").count() == 0
    assert page.locator(".legend button", has_text=HOSTILE).count() >= 1
    drawn = page.locator(".annotation", has_text=HOSTILE[:20])
    assert drawn.count() >= 1


@pytest.mark.parametrize("words", ["What each method costs", "Training loss"])
def test_legend_hides_and_shows_a_method_by_keyboard(opened: Opened, words: str) -> None:
    page = opened.page
    figure = of_title(page, words)
    lines = figure.locator(".scatterlayer .trace .points")
    before = lines.count()
    button = figure.get_by_role("button", name="bnp", exact=True)
    button.focus()
    page.keyboard.press("Space")
    assert button.get_attribute("aria-pressed") == "false"
    expect(lines).not_to_have_count(before)
    assert lines.count() < before
    page.keyboard.press("Space")
    assert button.get_attribute("aria-pressed") == "true"
    expect(lines).to_have_count(before)


@pytest.mark.regression
@pytest.mark.parametrize("width", [1120, 1200, 1280, 1600])
def test_no_column_of_the_answer_is_hidden(width: int, browser: Any, tmp_path: Path) -> None:
    """The last ones were, from 1120 to 1400 pixels, for the picture beside them."""
    path = tmp_path / "report.html"
    path.write_text(render_page(read_results(MEASURED / "quick")), encoding="utf-8")
    found = Opened(browser.new_page())
    found.page.set_viewport_size({"width": width, "height": 800})
    found.page.goto(path.as_uri())
    found.settle("document.documentElement.dataset.ready === 'true'")
    assert found.page.locator(".told .scroll").first.evaluate("box => box.scrollWidth <= box.clientWidth")
    found.page.close()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_screen_has_the_answer_and_its_picture(browser: Any, address: str, width: int, height: int) -> None:
    """As it opens, with nothing unfolded and nothing scrolled."""
    found = Opened(browser.new_page())
    page = found.page
    page.set_viewport_size({"width": width, "height": height})
    page.goto(address)
    found.settle("document.documentElement.dataset.ready === 'true'")
    chart = page.locator(".pictures .main-svg").first.bounding_box()
    assert chart["y"] + chart["height"] <= height
    rows = page.locator(".told tbody tr")
    assert rows.first.bounding_box()["y"] + rows.first.bounding_box()["height"] <= height
    if width > 1000:
        assert rows.last.bounding_box()["y"] < height
    assert page.locator(".menu .here a").all_inner_texts()[:2] == ["made", "Cost and gain"]
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    found.settle("scrollY > 1000")
    assert page.locator("header nav").bounding_box()["y"] < 50  # the menu stays
    page.close()


def test_a_table_wider_than_its_place_says_so(opened: Opened) -> None:
    page = opened.page
    page.set_viewport_size({"width": 390, "height": 844})
    cue = page.locator(".told .cue").first
    expect(cue).to_have_text("More to the right →")
    expect(cue).to_be_visible()
    page.locator(".told .scroll").first.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    expect(cue).to_have_text("← More to the left")
    page.evaluate("document.body.style.maxWidth = 'none'")
    page.set_viewport_size({"width": 3000, "height": 844})
    expect(cue).to_be_hidden()
    page.evaluate("document.body.style.maxWidth = ''")
    page.set_viewport_size({"width": 1100, "height": 800})


def test_a_link_into_the_details_is_not_hidden_by_the_menu(opened: Opened) -> None:
    page = opened.page
    page.locator(".menu a", has_text="Details").first.click()
    opened.settle("Math.abs(document.querySelector('[id$=-details]').getBoundingClientRect().top) < innerHeight / 2")
    page.wait_for_timeout(700)  # it glides there
    bar = page.locator("header").bounding_box()
    assert page.locator("[id$=-details]").first.bounding_box()["y"] >= bar["y"] + bar["height"] - 1
    page.evaluate("scrollTo(0, 0)")


def test_numbers_of_a_figure_for_those_who_do_not_see_it(opened: Opened) -> None:
    figure = of_title(opened.page, "Training loss")
    figure.locator("summary").focus()
    opened.page.keyboard.press("Enter")
    rows = figure.locator(".numbers tbody tr")
    rows.first.wait_for(timeout=10_000)
    assert rows.count() == 2 * 4 * 2 * 6  # batch sizes, methods, quantities, epochs
    assert rows.first.locator("td").all_inner_texts()[:3] == ["batch size 16", "vanilla", "training loss"]
    answer = of_title(opened.page, "What each method costs")
    answer.locator("summary").focus()
    opened.page.keyboard.press("Enter")
    rows = answer.locator(".numbers tbody tr")
    rows.first.wait_for(timeout=10_000)
    assert rows.count() == 2 * 3  # batch sizes, methods but the baseline
    assert rows.first.locator("td").all_inner_texts()[1:3] == ["bn", "N = 16"]


def test_light_and_dark(opened: Opened) -> None:
    page = opened.page
    seen = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ink = {"light": "rgb(28, 30, 33)", "dark": "rgb(230, 232, 234)"}[scheme]
        opened.settle(f"getComputedStyle(document.querySelector('.xtick text')).fill === '{ink}'")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        line = page.evaluate(
            "getComputedStyle(document.querySelector('.scatterlayer .js-line:not([style*=\"width: 0\"])')).stroke"
        )
        seen[scheme] = (ground, line)
    assert seen["light"][0] == "rgb(255, 255, 255)"
    assert seen["dark"][0] == "rgb(22, 24, 28)"
    assert seen["light"][1] != seen["dark"][1]
    page.emulate_media(color_scheme="light")


@pytest.mark.parametrize("width", [360, 1100])
def test_no_sideways_scrolling(opened: Opened, width: int) -> None:
    page = opened.page
    page.set_viewport_size({"width": width, "height": 740})
    opened.settle("Math.max(...[...document.querySelectorAll('.main-svg')].map(s => s.clientWidth)) <= innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, p, figure, .panels > div, main li, .scroll')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert outside == 0
    page.set_viewport_size({"width": 1100, "height": 800})


def test_texts_of_figures_do_not_collide(opened: Opened) -> None:
    """Ticks, titles and notes of each panel, at the width of a telephone and of a screen."""
    page = opened.page
    script = """() => {
      const clashes = [];
      for (const panel of document.querySelectorAll('.panels > div')) {
        const texts = [...panel.querySelectorAll('svg text')]
          .filter(t => t.textContent.trim() && !t.closest('.hoverlayer'));
        const boxes = texts.map(t => t.getBoundingClientRect());
        const frame = panel.getBoundingClientRect();
        boxes.forEach((a, i) => {
          if (a.left < frame.left - 1 || a.right > frame.right + 1) clashes.push('outside: ' + texts[i].textContent);
          boxes.slice(i + 1).forEach((b, j) => {
            if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
              clashes.push(texts[i].textContent + ' | ' + texts[i + 1 + j].textContent);
          });
        });
      }
      return clashes;
    }"""
    assert page.evaluate(script) == []
    page.set_viewport_size({"width": 360, "height": 740})
    opened.settle("Math.max(...[...document.querySelectorAll('.main-svg')].map(s => s.clientWidth)) <= innerWidth")
    assert page.evaluate(script) == []
    page.set_viewport_size({"width": 1100, "height": 800})


def test_prints(opened: Opened, tmp_path: Path) -> None:
    page = opened.page
    page.evaluate("addEventListener('beforeprint', () => { window.printed = true; })")
    page.emulate_media(color_scheme="dark")
    path = tmp_path / "page.pdf"
    page.pdf(path=path, format="A4")
    assert path.stat().st_size > 20_000
    assert page.evaluate("window.printed")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    opened.settle("Math.max(...[...document.querySelectorAll('.main-svg')].map(s => s.clientWidth)) <= 680")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator(".dt-search").first.is_visible()
    assert page.locator("main details:not(.numbers):not([open])").count() == 0
    opened.settle("getComputedStyle(document.querySelector('.xtick text')).fill === 'rgb(0, 0, 0)'")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen", color_scheme="light")


@pytest.mark.skipif("BNPBENCH_AXE" not in os.environ, reason="BNPBENCH_AXE does not name axe-core's axe.min.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opened: Opened, scheme: str) -> None:
    page = opened.page
    page.emulate_media(color_scheme=scheme)
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    page.evaluate(Path(os.environ["BNPBENCH_AXE"]).read_text(encoding="utf-8") + ";0")
    found = page.evaluate("axe.run()")
    assert [(v["id"], v["impact"], v["nodes"][0]["target"]) for v in found["violations"]] == []
    page.emulate_media(color_scheme="light")
