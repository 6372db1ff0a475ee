"""Methods, networks and data sets from a suite's own Python files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import load_suite, run_suite
from bnpbench.errors import DataError, SuiteError
from bnpbench.execution.children import ask
from bnpbench.execution.listing import listing
from bnpbench.execution.messages import Preflight
from bnpbench.execution.options import Options
from bnpbench.suite import plugins
from bnpbench.suite.plugins import module_file
from tests.support.command import bnpbench, called
from tests.support.plugins import PLUGIN, SUITE, write


def test_plugins_train_beside_the_methods_that_are_there(tmp_path: Path) -> None:
    results = run_suite(load_suite(write(tmp_path), allow_plugins=True), tmp_path / "out")
    assert list(results.cells.sort_values("label").label) == ["bnp", "rms", "rms(eps=0.1)", "vanilla"]
    assert set(results.cells.status) == {"ok"}
    assert results.epochs.test_accuracy.max() > 0.9


def test_plugins_are_run_only_where_that_is_allowed(tmp_path: Path) -> None:
    done = called("run", write(tmp_path, plugin="raise SystemExit('it ran')"), cwd=tmp_path)
    assert done.returncode == 2
    assert "--allow-plugins" in done.stderr
    assert "it ran" not in done.stderr


def test_the_bytes_of_a_plugin_are_part_of_the_key(tmp_path: Path) -> None:
    keys = []
    for plugin in (PLUGIN, PLUGIN + "\n# another thought\n"):
        suite = load_suite(write(tmp_path, plugin=plugin), allow_plugins=True)
        keys.append({cell.key for cell in suite.cells(device="cpu", threads=1)})
    assert not keys[0] & keys[1]


WITH_MODULES = """
from typing import Literal

from bnpbench import MethodPlugin, NetworkPlugin
from tools.scale import Scale as _Scale


class Scaled(MethodPlugin):
    kind: Literal["scaled"]

    def layer(self, features, spatial_dims, site):
        import factors  # only where it is built
        import torch  # never the file of that name beside the suite

        assert torch.nn
        return _Scale(factors.FACTOR)
"""
MODULES = {
    "factors.py": "FACTOR = 2.0\n",
    "tools/scale.py": "from torch import nn\nfrom . import base\n\n\nclass Scale(base.Base):\n    pass\n",
    "tools/base.py": (
        "from torch import nn\n\n\nclass Base(nn.Module):\n"
        "    def __init__(self, factor):\n        super().__init__()\n        self.factor = factor\n\n"
        "    def forward(self, x):\n        return x * self.factor\n"
    ),
    "torch.py": "raise SystemExit('the wrong torch')\n",
    "other.py": "NOT_IMPORTED = 1\n",
}
MODULAR = SUITE.replace(
    'dataset = "signs"', 'dataset = { kind = "synthetic", shape = [6], train = 60, test = 20 }'
).replace('network = "linear"', 'network = { kind = "fc", hidden = [4] }')


def write_modules(folder: Path, change: str | None = None) -> Path:
    for name, text in MODULES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text + ("\n# changed\n" if name == change else ""))
    suite = MODULAR.partition("method = ")[0] + 'method = ["scaled"]\n'
    return write(folder, suite, WITH_MODULES)


def only_key(path: Path) -> str:
    (cell,) = load_suite(path, allow_plugins=True).cells(device="cpu", threads=1)
    return cell.key


def test_modules_beside_a_plugin_are_imported_in_every_process(tmp_path: Path) -> None:
    write_modules(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = bnpbench("run", "../own.toml", "--allow-plugins", cwd=elsewhere)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize(
    ("changed", "another"),
    [("factors.py", True), ("tools/scale.py", True), ("tools/base.py", True), ("other.py", False)],
)
def test_what_a_plugin_imports_from_its_folder_is_part_of_the_key(tmp_path: Path, changed: str, another: bool) -> None:
    keys = [only_key(write_modules(tmp_path, change)) for change in (None, changed)]
    assert (keys[0] != keys[1]) == another


def test_a_changed_module_is_run_and_not_the_one_before(tmp_path: Path) -> None:
    seen = []
    for number in (1, 2):
        (tmp_path / "values.py").write_text(f"VALUE = {number}\n")
        path = write(tmp_path, plugin=PLUGIN + "\nimport values\n\nRmsNorm.seen = values.VALUE\n")
        suite = load_suite(path, allow_plugins=True)
        seen.append(next(c for c in suite.cells(device="cpu", threads=1, only=["method=rms"])).settings.method.seen)
    assert seen == [1, 2]


def test_files_that_plugins_read_are_part_of_the_key_where_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "table.npz").write_bytes(b"first")
    text = SUITE.replace('plugins = ["mine.py"]', 'plugins = ["mine.py"]\nreads = ["table.npz"]')
    keys = []
    for content in (b"first", b"second", b"first"):
        (tmp_path / "table.npz").write_bytes(content)
        suite = load_suite(write(tmp_path, text), allow_plugins=True)
        keys.append([cell.key for cell in suite.cells(device="cpu", threads=1)])
    assert keys[0] == keys[2] != keys[1]
    for changed, words in (
        (text.replace("table.npz", "none.npz"), r"own.toml:4: reads\[0\]: no such file"),
        (text.replace("table.npz", "../own.toml"), "no such file inside the suite's folder"),
        (text.replace('plugins = ["mine.py"]\n', ""), "reads: .* the suite has no plugins"),
    ):
        with pytest.raises(SuiteError, match=words):
            load_suite(write(tmp_path, changed), allow_plugins=True)


def test_check_says_that_it_does_not_see_what_plugins_read(tmp_path: Path) -> None:
    (tmp_path / "table.npz").write_bytes(b"")
    words, named = "files that plugins read", 'plugins = ["mine.py"]\nreads = ["table.npz"]'
    for text in (SUITE, SUITE.replace('plugins = ["mine.py"]', named)):
        selection = Options().selection(load_suite(write(tmp_path, text), allow_plugins=True))
        told = listing(selection, tmp_path / "results").text()
        assert (words in told) == (text == SUITE)
        assert "left unchecked: network 'linear' (a plugin)" in told


@pytest.mark.parametrize(
    ("plugin", "word"),
    [
        ("x = (", "SyntaxError"),
        ("import nosuchmodule", "nosuchmodule"),
        ("x = 1", "defines no subclass"),
        (PLUGIN.replace('"rms"', '"bn"'), "choose another kind"),
        (PLUGIN.replace('kind: Literal["rms"]', ""), "RmsNorm needs a kind"),
    ],
)
def test_a_plugin_that_does_not_fit_is_named(tmp_path: Path, plugin: str, word: str) -> None:
    """With the line of its class; it had the file's name alone."""
    place = rf":{line_of('class RmsNorm', plugin)}" if "class RmsNorm" in plugin else ""
    with pytest.raises(SuiteError, match=rf"mine\.py{place}.*{word}"):
        load_suite(write(tmp_path, plugin=plugin), allow_plugins=True)


def line_of(text: str, plugin: str = PLUGIN) -> int:
    return plugin[: plugin.index(text)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return DataShape((6,), 2, 300, 100)", "return {}['rows']", r"Signs\.describe raised KeyError: 'rows'"),
        ("return DataShape((6,), 2, 300, 100)", "raise SystemError('x')", r"Signs\.describe raised SystemError: x"),
        ("def describe(self):", "def no_shape(self):", r"Signs defines no describe\(\)"),
    ],
)
def test_a_plugin_that_fails_when_asked_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    place = rf"mine\.py:{line_of(old if 'return' in old else 'class Signs')}: "
    with pytest.raises(SuiteError, match=place + said):
        load_suite(write(tmp_path, plugin=PLUGIN.replace(old, new)), allow_plugins=True)


def test_a_plugin_that_gives_a_tuple_is_named(tmp_path: Path) -> None:
    plugin = PLUGIN.replace("return DataShape((6,), 2, 300, 100)", "return (6,), 2, 300, 100")
    line = line_of("def describe(self):")
    with pytest.raises(SuiteError, match=rf"mine\.py:{line}: Signs\.describe gave \(\(6,\), 2, 300, 100\); give a "):
        load_suite(write(tmp_path, plugin=plugin), allow_plugins=True)


@pytest.mark.parametrize("statement", ["raise KeyError('x')", "import sys; sys.exit(0)", "x = ("])
def test_a_plugin_that_does_not_run_is_named_with_its_line(tmp_path: Path, statement: str) -> None:
    with pytest.raises(SuiteError, match=r"mine\.py:3: does not run"):
        load_suite(write(tmp_path, plugin=f"x = 1\ny = 2\n{statement}\n"), allow_plugins=True)


def test_options_of_a_plugin_that_fail_are_named(tmp_path: Path) -> None:
    check = """
    @field_validator("eps")
    @classmethod
    def known(cls, value):
        return {}[value]
"""
    plugin = "from pydantic import field_validator\n" + PLUGIN.replace(
        "    eps: float = 1e-6\n", f"    eps: float = 1e-6\n{check}"
    )
    line = line_of("return {}[value]", plugin)
    with pytest.raises(SuiteError, match=rf"mine\.py:{line}: RmsNorm\.known raised KeyError"):
        load_suite(write(tmp_path, plugin=plugin), allow_plugins=True)


def test_a_plugin_outside_the_suites_folder_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "mine.py").write_text(PLUGIN)
    (inner / "own.toml").write_text(SUITE.replace("mine.py", "../mine.py"))
    with pytest.raises(SuiteError, match="inside the suite's folder"):
        load_suite(inner / "own.toml", allow_plugins=True)


def test_a_fault_in_a_plugin_ends_its_cell_only(tmp_path: Path) -> None:
    faulty = ", ".join(f'{{ kind = "faulty", how = "{how}" }}' for how in ("raise", "exit", "build"))
    methods = f'["vanilla", {faulty}]\n[measure]\ninterleave = ["method"]'
    suite = SUITE.partition("method = ")[0] + "method = " + methods
    results = run_suite(load_suite(write(tmp_path, suite), allow_plugins=True), tmp_path / "out")
    cells = results.cells.set_index("label")
    assert cells.status["vanilla"] == "ok"
    assert cells.status["faulty"] == "error"
    line = line_of("raise ArithmeticError")
    assert cells.message["faulty"] == f"ArithmeticError: no such number (mine.py:{line})"
    assert cells.status["faulty(how=build)"] == "error"
    assert "RMSNrm" in cells.message["faulty(how=build)"]
    assert cells.status["faulty(how=exit)"] == "crashed"
    assert "exit code 7" in cells.message["faulty(how=exit)"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("return x[:300]", "return x[:200]"),
            r"train examples are torch.float32 of shape \(200, 6\), not .*\(300, 6\)",
        ),
        (("(400, 6,", "(400, 7,"), r"\(300, 7\), not"),
        (("x[300:], y[300:]", "x[300:], y"), r"test labels are torch.int64 of shape \(400,\), not .*\(100,\)"),
        ((".long()", ".float()"), "train labels are torch.float32 of shape"),
        ((".long()", ".long() * 2"), "train labels go from 0 to 2, not from 0 to 1"),
        ((", x[300:], y[300:]", ""), "no tuple of four tensors"),
    ],
)
def test_a_data_set_that_is_not_what_its_shape_says(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    assert change[0] in PLUGIN
    suite = load_suite(write(tmp_path, plugin=PLUGIN.replace(*change)), allow_plugins=True)
    (cell, *_) = suite.cells(device="cpu", threads=1)
    with pytest.raises(DataError, match=f"'signs' does not load what its shape says: .*{words}"):
        cell.settings.dataset.tensors(tmp_path)


ASKS = """

class Asks(NetworkPlugin):
    kind: Literal["asks"]
    often: int = 1

    def build(self, normalization, input_shape, classes):
        from torch import nn

        norms = [normalization.make(4, 0, "hidden") for _ in range(self.often)]
        return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), *norms, nn.Linear(4, classes))


class Unlearning(NetworkPlugin):
    kind: Literal["unlearning"]

    def build(self, normalization, input_shape, classes):
        from torch import nn

        return nn.Sequential(normalization.make(6, 0, "x"), nn.Flatten(), nn.Bilinear(6, 6, classes))
"""


@pytest.mark.parametrize(
    ("network", "method", "reason"),
    [
        ('{ kind = "asks" }', "bn", None),
        ('{ kind = "asks", often = 0 }', "bn", "asks for no normalization: 'bn' would be vanilla under another name"),
        ('{ kind = "asks", often = 0 }', "bnp", None),
        ('{ kind = "asks", often = 0 }', "bnp+gn", "asks for no normalization: 'bnp+gn' would be bnp under another"),
        ('{ kind = "unlearning" }', "bnp", "no layer of the network 'unlearning' is preconditioned"),
        ('{ kind = "fc", hidden = [] }', "ln", "network 'fc' asks for no normalization"),
        ('{ kind = "asks", often = 2 }', "bn", "'hidden' was asked for twice"),
    ],
)
def test_a_method_that_would_be_another_under_its_name_is_not_applicable(
    tmp_path: Path, network: str, method: str, reason: str | None
) -> None:
    text = SUITE.partition("[sweep]")[0].replace('network = "linear"', f"network = {network}")
    suite = load_suite(write(tmp_path, f'{text}method = "{method}"\n', PLUGIN + ASKS), allow_plugins=True)
    (found,) = ask(Preflight(suite.cells(device="cpu", threads=1), None, True), suite.plugins).values()
    if reason is None:
        assert (found.not_applicable, found.uncounted) == (None, None)
    else:
        assert reason in (found.not_applicable or found.uncounted)
        assert (found.not_applicable is None) == ("twice" in reason)


def test_where_an_operator_has_no_deterministic_form_the_cell_names_it(tmp_path: Path) -> None:
    text = SUITE.replace("batch_size = 10", "batch_size = 10\ndeterministic = true").partition("[sweep]")[0]
    path = write(tmp_path, text + '[sweep]\nmethod = ["bnp", { kind = "faulty", how = "put" }]\n')
    suite = load_suite(path, allow_plugins=True)
    first, second = (run_suite(suite, tmp_path / name) for name in ("first", "second"))
    cells = first.cells.set_index("method")
    assert dict(cells.status) == {"bnp": "ok", "faulty": "error"}
    assert "put_" in cells.message["faulty"]
    assert "deterministic" in cells.message["faulty"]
    told = ["epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy"]
    assert first.epochs[told].equals(second.epochs[told])


@pytest.mark.regression
def test_an_installed_module_is_hashed_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "installed_of_a_test"
    (package / "inner").mkdir(parents=True)
    for file in ("__init__.py", "models.py", "inner/layers.py"):
        (package / file).write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    def found() -> str:
        file = module_file("installed_of_a_test.models", ())
        assert file is not None
        return file.sha256

    first = found()
    (package / "inner" / "layers.py").write_text("# changed")
    second = found()
    (package / "inner" / "layers.py").rename(package / "inner" / "others.py")
    third = found()
    assert len({first, second, third}) == 3
    (package / "notes.txt").write_text("not code")
    assert found() == third


@pytest.mark.regression
def test_a_large_library_is_told_apart_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    first = module_file("torchvision.models", ())
    monkeypatch.setattr(plugins, "version", lambda name: "0.0")
    second = module_file("torchvision.models", ())
    assert first is not None
    assert second is not None
    assert first.path == second.path
    assert first.sha256 != second.sha256
