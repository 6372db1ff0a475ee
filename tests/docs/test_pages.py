"""The README and the pages of the documentation: every block runs or is checked, every link leads somewhere."""

from __future__ import annotations

import re
import signal
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
from torch import nn

from bnpbench import load_suite, run_suite, theory
from bnpbench.cli import app, run
from bnpbench.errors import SuiteError
from bnpbench.execution import listing
from bnpbench.execution import run as execution
from bnpbench.execution.options import Options, Selection
from bnpbench.execution.run import Ran
from bnpbench.fields import Kinded
from bnpbench.profiling import inspection
from bnpbench.records.rows import METRICS
from bnpbench.registry import BASES, built_in
from bnpbench.report.document import Chapter
from bnpbench.results.schema import SCHEMAS, STATUSES
from bnpbench.suite.document import Claim, Document, Measure, Probe, Report, Select
from bnpbench.suite.settings import SETTINGS
from tests.support.made_results import Made, epochs
from tests.support.markdown import (
    PAGES,
    ROOT,
    Block,
    actions,
    anchors,
    blocks,
    commands,
    inline_code,
    links,
    prose,
    text_of,
)
from tests.support.plugins import PLUGIN

LINKED = (*PAGES, "ARCHITECTURE.md", "CONTRIBUTING.md", *sorted(f"reports/{p.name}" for p in ROOT.glob("reports/*.md")))
FOLLOWED = {"docs/how-to/column.md"}  # changes the package, in a copy of it: tests/docs/test_how_to.py
MOST_LINES = {"README.md": 150, "docs/suites.md": 260}
LINES = 250  # of any other page

NOT_RUN = (
    ("python3 -m venv", "an environment: .ci/run makes it by the README's own line"),
    ("pip install", "fetches packages: .ci/run does so by the README's own line"),
    ("nox", "runs these tests"),
    ("git checkout", "a step of a workflow, of a repository that is not here"),
    ("export", "a variable of the reader's shell"),
    ("sleep", "waits for what is not run here"),
    ("ray start", "a cluster: tests/execution/test_cluster.py starts one"),
    ("srun", "there is no Slurm here, and the page says so"),
)
"""What begins a command that is printed and not run, and why not."""

SMALLEST: dict[str, Any] = {
    "name": "smallest",
    "train": {
        "dataset": "digits",
        "network": {"kind": "fc", "hidden": [20]},
        "optimizer": {"kind": "sgd", "lr": 0.1},
        "epochs": 5,
        "threads": 1,
    },
    "sweep": {"method": ["vanilla", "bn", "bnp"], "batch_size": [1, 60], "seed": [1, 2, 3]},
}
"""What a part of a suite is put into."""


# --- what a page needs to be there, and what must be there when it has been followed ---------------------


@contextmanager
def quick_results(folder: Path) -> Iterator[dict[str, Any]]:
    made = Made(folder / "results", "quick")
    for seed, gain in enumerate((0.1, 0.2, 0.3)):
        made.cell("vanilla", 60, seed, epochs([1.0, 1.0], [0.4, 0.5]))
        made.cell("bnp", 60, seed, epochs([1.0, 1.0], [0.4, 0.5 + gain]))
        made.cell("bnp", 6, seed, epochs([1.0], [0.9]))
    made.read()
    yield {}


@contextmanager
def notebook(folder: Path) -> Iterator[dict[str, Any]]:
    with quick_results(folder) as scope:
        yield scope
    assert (folder / "curves.png").stat().st_size > 1000
    last = scope["last"]
    statistic = scope["ttest_rel"](last["bnp"], last["vanilla"]).statistic
    assert statistic == pytest.approx(0.2 / (0.1 / 3**0.5))


@contextmanager
def own_code(folder: Path) -> Iterator[dict[str, Any]]:
    torch.manual_seed(0)
    layers = {"fc1": nn.Linear(5, 4), "relu": nn.ReLU(), "fc2": nn.Linear(4, 3)}
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    before = [parameter.clone() for parameter in model.parameters()]
    batches = [(torch.randn(8, 5), torch.randint(3, (8,))) for _ in range(3)]
    (folder / "my_data.py").write_text(PLUGIN)
    (folder / "table.npz").write_bytes(b"")
    scope = {
        "model": model,
        "batches": batches,
        "loss_fn": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    yield scope
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert scope["bnp"].layers == ("fc1", "fc2")
    assert scope["flops"].total > 2 * 8 * (5 * 4 + 4 * 3)
    assert set(scope["results"].cells.status) == {"ok"}


@contextmanager
def shards(folder: Path) -> Iterator[dict[str, Any]]:
    for number in (2, 3):
        made_up(folder / f"shard-{number}", "fc-mnist")
    yield {}


NEEDS: dict[str, Callable[[Path], AbstractContextManager[dict[str, Any]]]] = {
    "docs/report.md": quick_results,
    "docs/results.md": notebook,
    "docs/library.md": own_code,
    "docs/machines.md": shards,
}


def made_up(out: Path, name: str) -> None:
    """Results of a suite, as a run would leave them."""
    made = Made(out, name)
    for method in ("vanilla", "bnp"):
        made.cell(method, 60, 1, epochs([1.0] * 8, [0.5] * 8))
    made.read()


# --- blocks ----------------------------------------------------------------------------------------------


@pytest.fixture
def untrained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the repository's suites and reports in it, where commands do everything but train."""

    def execute(selection: Selection, options: Options, progress: Any) -> Ran:
        assert selection.suite.blocks(selection.cells)
        made_up(options.out, selection.suite.name)
        return Ran(0, frozenset())

    def verify(statements: list[str] | None, **options: Any) -> list[Any]:
        assert set(statements or ()) <= set(theory.ORDER)
        return []

    def nothing_to_show(*arguments: Any) -> tuple[Chapter, list[Path], list[str]]:
        return Chapter("", "", ()), [], []

    for name in ("suites", "reports"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("BNPBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("BNPBENCH_OFFLINE", raising=False)
    monkeypatch.setattr(execution, "execute", execute)
    monkeypatch.setattr(theory, "verify", verify)
    monkeypatch.setattr(inspection, "profile", nothing_to_show)
    monkeypatch.setattr(listing, "build", lambda *arguments, **options: listing.Built((), 0))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run_python(block: Block, scope: dict[str, Any]) -> None:
    if block.file:
        Path(block.file).write_text(block.text)
    numbered = "\n" * (block.line - 1) + block.text
    exec(compile(numbered, str(ROOT / block.page), "exec", dont_inherit=True), scope)


def load_toml(block: Block, scope: dict[str, Any]) -> None:
    """A whole suite is kept as the file of its name; a part of one is put into the smallest."""
    found = tomllib.loads(block.text)
    text = block.text
    if "name" not in found:
        text = "\n".join(f"{name} = {inline(value)}" for name, value in completed(found).items())
    name = block.file or f"{found.get('name', 'smallest')}.toml"
    Path(name).write_text(text)
    assert load_suite(name, allow_plugins=True).cells(device="cpu", threads=1)


def completed(part: dict[str, Any]) -> dict[str, Any]:
    """The smallest suite with the tables of ``part`` in it; a setting stands in [train] or in [sweep]."""
    whole: dict[str, Any] = {**SMALLEST, **part}
    for name, other in (("train", "sweep"), ("sweep", "train")):
        kept = {key: value for key, value in SMALLEST[name].items() if key not in part.get(other, {})}
        whole[name] = {**kept, **part.get(name, {})}
    optimizer = whole["sweep"].get("optimizer")
    if isinstance(optimizer, dict):  # an axis of one option of it
        whole["train"]["optimizer"] = SMALLEST["train"]["optimizer"]
    return whole


def inline(value: Any) -> str:
    """A value as TOML writes it within a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{bare(name)} = {inline(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return (
        str(value).lower() if isinstance(value, bool) else repr(value) if not isinstance(value, str) else quoted(value)
    )


def bare(name: str) -> str:
    """A key, in quotes where it holds a dot."""
    return quoted(name) if "." in name else name


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def run_commands(block: Block, scope: dict[str, Any]) -> None:
    script = actions(block.text) if block.language == "yaml" else block.text
    for words in commands(script):
        command = " ".join([words[0].removeprefix(".venv/bin/"), *words[1:]])
        if command.startswith("bnpbench "):
            assert run(words[1:]) == 0, f"{block}: {command}"
        else:
            assert command.startswith(tuple(begin for begin, _ in NOT_RUN)), f"{block}: what is {command!r}?"


def leave(block: Block, scope: dict[str, Any]) -> None:
    """What a program prints."""


RUN = {
    "python": run_python,
    "toml": load_toml,
    "sh": run_commands,
    "yaml": run_commands,
    "text": leave,
}


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.parametrize("page", [page for page in PAGES if page not in FOLLOWED])
def test_what_a_page_shows_runs(page: str, untrained: Path) -> None:
    with NEEDS.get(page, lambda folder: nullcontext({}))(untrained) as scope:
        for block in blocks(page):
            assert block.language in RUN, f"{block}: a block of {block.language or 'no language'}"
            RUN[block.language](block, scope)


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("python", "import bnpbench\nbnpbench.no_such_name", AttributeError),
        ("toml", "[train]\nepoch = 2", SuiteError),
        ("toml", '[[claim]]\nsays = "nobody"\nleft = { method = "ln" }', SuiteError),
        ("sh", "bnpbench run suites/quick.toml --no-such-option", AssertionError),
        ("sh", "true && bnpbench run quick", AssertionError),
        ("sh", "bnpbench run suites/quick.toml --only method=gn", AssertionError),
        ("sh", "bnpbench run suites/quick.toml --jobs 2", AssertionError),
        ("sh", "bnpbench report nowhere  # a folder", AssertionError),
        ("yaml", "  - run: bnpbench check nowhere.toml", AssertionError),
    ],
)
def test_a_block_that_is_wrong_is_found(language: str, text: str, expected: type[Exception], untrained: Path) -> None:
    with pytest.raises(expected):
        RUN[language](Block("README.md", 1, language, text, None), {})


def test_commands_are_told_apart() -> None:
    script = 'A=1 one "$A/8" > out.txt # no\nfirst=$(hostname)\ntwo \\\n  ${{ x.y }} && three |four&\n#SBATCH --x'
    assert list(commands(script)) == [["one", "1/8"], ["two", "1"], ["three"], ["four"]]


def test_the_method_of_ones_own_trains(tmp_path: Path) -> None:
    for block in blocks("docs/library.md"):
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    suite = load_suite(tmp_path / "own.toml", allow_plugins=True)
    cells = run_suite(suite, tmp_path / "results", epochs=1, seeds=1).cells
    assert set(zip(cells.label, cells.status, strict=True)) == {(name, "ok") for name in ("vanilla", "rms", "bnp")}


# --- what stands in the text -----------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_have_the_options_that_they_name(page: str) -> None:
    for text in inline_code(page):
        words = [word for word in text.split() if word not in options_of(GROUP)]
        if words[0] != "bnpbench" or len(words) == 1 or not words[1].islower():
            continue
        options = OPTIONS[words[1]]
        assert {word for word in words[2:] if word.startswith("--")} <= options, f"{page}: {text}"


@pytest.mark.parametrize("page", LINKED)
def test_every_link_leads_somewhere(page: str) -> None:
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (ROOT / page).parent / path if path else ROOT / page
        assert place.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(str(place.resolve().relative_to(ROOT))), f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_too_long(page: str) -> None:
    assert len(text_of(page).splitlines()) <= MOST_LINES.get(page, LINES)


def test_the_two_commands_are_those_that_continuous_integration_runs() -> None:
    commands = [block.text.strip() for block in blocks("README.md") if block.language == "sh"]
    first, second = commands[:2]
    assert (first[:7], second) == ("python3", ".venv/bin/nox")
    for script in (text_of(".ci/run"), actions(text_of(".github/workflows/ci.yml"))):
        lines = script.splitlines()
        assert lines.index(first) < lines.index(second)


# --- what has to be said somewhere -----------------------------------------------------------------------


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in getattr(parameter, "opts", ()) if name.startswith("--")}


GROUP: Any = typer.main.get_command(app)
OPTIONS = {
    name: options_of(command).union(*(options_of(inner) for inner in getattr(command, "commands", {}).values()))
    for name, command in GROUP.commands.items()
}


def named(*pages: str) -> set[str]:
    """The words in code on these pages."""
    return {word for page in pages for code in inline_code(page) for word in re.findall(r"[\w+./-]+", code)}


def test_every_option_of_every_command_is_on_a_page() -> None:
    everything = "\n".join(map(text_of, PAGES))
    for name, options in OPTIONS.items():
        missing = {option for option in options if not re.search(rf"{option}(?![\w-])", everything)}
        assert not missing, name


def test_every_setting_and_kind_and_option_is_on_its_page() -> None:
    settings = named("docs/settings.md", "docs/methods.md")
    assert set(SETTINGS) <= settings
    kinds: list[type[Kinded]] = [kind for base in BASES for kind in built_in().kinds(base).values()]
    words = {kind.word() for kind in kinds}.union(*(kind.model_fields for kind in kinds)) - {None}
    assert words <= settings | {"kind"}


def test_every_key_of_a_suite_is_on_its_page() -> None:
    words = named("docs/suites.md") | {
        key for block in blocks("docs/suites.md") for key in re.findall(r"\w+", block.text)
    }
    for table in (Document, Measure, Select, Probe, Report, Claim):
        assert set(table.model_fields) <= words, table


def test_every_shipped_suite_is_on_its_page() -> None:
    assert {path.stem for path in ROOT.glob("suites/*.toml")} <= named("docs/suites.md")


def test_every_column_and_status_is_on_its_page() -> None:
    columns = {name for schema in SCHEMAS.values() for name in schema.names}
    assert columns <= named("docs/results.md")
    assert named("docs/report.md") >= STATUSES
    assert named("docs/suites.md", "docs/results.md") >= set(METRICS)


def test_every_message_in_troubleshooting_is_one_of_the_program() -> None:
    told = re.findall(r"^\| `([^`]+)` \|", prose("docs/troubleshooting.md"), re.MULTILINE)
    code = "".join(path.read_text() for path in sorted((ROOT / "bnpbench").rglob("*.py")))
    sentences = re.sub(r'"\s*\n\s*f?"', "", code)
    assert told
    assert [message for message in told if message not in sentences] == []
