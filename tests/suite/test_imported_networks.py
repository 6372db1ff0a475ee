"""Networks that a suite, or the command line, names by a module and a function: what is run, hashed and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench import load_suite
from bnpbench.errors import SuiteError
from bnpbench.execution.messages import Preflight, Profile
from bnpbench.execution.preflight import preflight
from bnpbench.profiling.phases import profile
from tests.support.command import called

NETS = """
from torch import nn
from nets.parts import activation
def make(num_classes, width=4):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, width), nn.BatchNorm1d(width), activation(), nn.Linear(width, num_classes)
    )
def odd(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, num_classes))
"""
PARTS = "from torch import nn\nactivation = nn.ReLU\n"
SUITE = """
name = "imported"
[train]
dataset = "digits"
network = { kind = "import", target = "nets.mine:make" }
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 60
epochs = 1
threads = 1
device = "cpu"
train_limit = 120
[sweep]
method = ["native", "gn", "bnp+native"]
"""


def write(folder: Path, suite: str = SUITE) -> Path:
    (folder / "nets").mkdir(exist_ok=True)
    (folder / "nets" / "mine.py").write_text(NETS)
    (folder / "nets" / "parts.py").write_text(PARTS)
    (folder / "imported.toml").write_text(suite)
    return folder / "imported.toml"


def keys(path: Path) -> set[str]:
    return {cell.key for cell in load_suite(path, allow_plugins=True).cells(device="cpu", threads=1)}


def test_it_is_imported_only_where_that_is_allowed(tmp_path: Path) -> None:
    for change in (
        "",
        '[[override]]\nwhen = { method = "gn" }\nset = { network = { kind = "import", target = "a:b" } }',
    ):
        with pytest.raises(SuiteError, match=r"target: names Python code to run; pass --allow-plugins"):
            load_suite(write(tmp_path, SUITE + change))


@pytest.mark.regression
def test_networks_of_one_name_in_two_modules_are_two_suites(tmp_path: Path) -> None:
    """The second took the place of the first's results."""
    path, long = write(tmp_path), "x" * 70
    for module in ("one", "two", long):
        (tmp_path / f"{module}.py").write_text("def make(): ...\ndef odd(): ...\n")
    targets = ("one:make", "two:make", "nets.mine:make", f"{long}:make", f"{long}:odd")
    names = [load_suite(path, network=target).name for target in targets]
    assert names[:3] == ["imported-one-make", "imported-two-make", "imported-nets-mine-make"]
    assert len(set(names)) == len(targets)
    assert all(len(name) <= 64 for name in names)


@pytest.mark.regression
@pytest.mark.parametrize("target", ["netsmake", "nets.mine", "nets:", "3:make"])
def test_a_target_that_is_none_is_told_as_on_the_command_line(tmp_path: Path, target: str) -> None:
    """It was told what a suite's name may hold."""
    with pytest.raises(SuiteError, match=f'train.network.target: give package.module:factory, not "{target}"'):
        load_suite(write(tmp_path, SUITE.replace("nets.mine:make", target)), allow_plugins=True)


def test_a_module_that_is_nowhere_is_told(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"train.network.target: no module 'nets.other' is installed or beside"):
        load_suite(write(tmp_path, SUITE.replace("nets.mine", "nets.other")), allow_plugins=True)


def test_its_source_and_what_that_imports_are_in_the_key(tmp_path: Path) -> None:
    before = keys(write(tmp_path))
    (tmp_path / "nets" / "parts.py").write_text(PARTS + "# changed\n")
    after = keys(tmp_path / "imported.toml")
    assert not before & after
    (tmp_path / "nets" / "parts.py").write_text(PARTS)
    assert keys(tmp_path / "imported.toml") == before


def test_its_weights_are_kept_unless_the_suite_says_how_they_are_drawn(tmp_path: Path) -> None:
    def kinds(change: str) -> set[str]:
        path = write(tmp_path, SUITE.replace("train_limit = 120", f"train_limit = 120\n{change}"))
        cells = load_suite(path, allow_plugins=True).cells(device="cpu", threads=1)
        return {cell.settings.initialization.kind for cell in cells}

    assert kinds("") == {"keep"}
    assert kinds('initialization = "glorot"') == {"glorot"}
    override = '[[override]]\nwhen = { method = "gn" }\nset = { initialization = "he-normal" }'
    cells = load_suite(write(tmp_path, SUITE + override), allow_plugins=True).cells(device="cpu", threads=1)
    assert [cell.settings.initialization.kind for cell in cells] == ["keep", "he-normal", "keep"]
    assert any("redraws all weights" in told for told in load_suite(write(tmp_path, SUITE + override),
               allow_plugins=True).warnings(cells))  # fmt: skip


def test_a_network_on_the_command_line_takes_the_place_of_the_suites(tmp_path: Path) -> None:
    write(tmp_path)
    done = called("run", "quick", "--network", "nets.mine:make", "--epochs", "1", "--seeds", "1", "--only",
                  "batch_size=60", "--device", "cpu", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "over native" in done.stdout
    assert "bnp+native" in done.stdout
    assert (tmp_path / "results" / "quick-nets-mine-make").is_dir()


@pytest.mark.parametrize(
    ("target", "words"),
    [("nets.mine", "give package.module:factory"), ("no_such_module_here:make", "no such module is installed")],
)
def test_what_is_no_network_on_the_command_line(tmp_path: Path, target: str, words: str) -> None:
    with pytest.raises(SuiteError, match=f"--network {target}: {words}"):
        load_suite(write(tmp_path), network=target)


TOUCH = """
name = "touch"
[train]
dataset = "digits"
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 60
epochs = 1
method = "native"
"""
PARTS_OF_IT = """
network.kind = ["import"]
network.target = ["subprocess:run"]
network.options = [{ args = "touch FOUND", shell = true }]
"""
RUN = '{ kind = "import", target = "subprocess:run" }'


@pytest.mark.regression
@pytest.mark.parametrize(
    ("train", "rest"),
    [
        ("", f"[sweep]{PARTS_OF_IT}"),
        (f"network = {RUN}", ""),
        ("", f"[sweep]\nnetwork = [{RUN}]"),
        ('network = "fc"', f'[[override]]\nwhen = {{ method = "native" }}\nset = {{ network = {RUN} }}'),
        ("", '[sweep]\nnetwork.kind = ["import"]\nnetwork.target = ["nets.mine:make", "subprocess:run"]'),
        (
            'network = { kind = "import", target = "nets.mine:make" }',
            '[[override]]\nwhen = { method = "native" }\nset = { network.target = "subprocess:run" }',
        ),
    ],
)
def test_no_way_of_writing_it_leads_past_the_flag_or_the_key(tmp_path: Path, train: str, rest: str) -> None:
    path = write(tmp_path, TOUCH + train + "\n" + rest)
    with pytest.raises(SuiteError, match=r"names Python code to run; pass --allow-plugins"):
        load_suite(path)
    suite = load_suite(path, allow_plugins=True)
    (run,) = (file for file in suite.plugins if file.module == "subprocess")
    assert all(run.sha256 in cell.settings.plugins for cell in suite.cells(device="cpu", threads=1))


@pytest.mark.regression
def test_a_change_on_the_command_line_does_not_either(tmp_path: Path) -> None:
    path = write(tmp_path, TOUCH + 'network = "fc"')
    changes = ["network.kind=import", "network.target=subprocess:run"]
    for network in (None, "nets.mine:make"):
        with pytest.raises(SuiteError, match=r"names Python code to run; pass --allow-plugins"):
            load_suite(path, changes=changes, network=network)
    suite = load_suite(path, changes=changes, network="nets.mine:make", allow_plugins=True)
    assert {file.module for file in suite.plugins} >= {"subprocess"}


@pytest.mark.regression
def test_one_inside_of_a_plugins_network_is_found(tmp_path: Path) -> None:
    (tmp_path / "held.py").write_text(
        "from typing import Any, Literal\n"
        "from bnpbench.networks.imported import Imported\n"
        "from bnpbench import NetworkPlugin\n"
        "class Mine(Imported):\n    kind: Literal['mine']\n"
        "class Held(NetworkPlugin):\n    kind: Literal['held']\n    inner: Imported\n"
    )
    for network in ('{ kind = "mine", target = "nets.mine:make" }', f"{{ kind = 'held', inner = {RUN} }}"):
        text = TOUCH.replace("[train]", f'plugins = ["held.py"]\n[train]\nnetwork = {network}')
        suite = load_suite(write(tmp_path, text), allow_plugins=True)
        assert {file.module for file in suite.plugins} & {"nets.mine", "subprocess"}


@pytest.mark.regression
def test_a_function_that_a_module_does_not_define_is_named_before_anything_runs(tmp_path: Path) -> None:
    """With the nearest of those that it has, and at once, as a module that is not there."""
    path = write(tmp_path, SUITE.replace("nets.mine:make", "nets.mine:maek"))
    with pytest.raises(SuiteError, match=r"target: .*mine\.py defines no 'maek' \(did you mean 'make'\?\)"):
        load_suite(path, allow_plugins=True)
    done = called("run", "imported.toml", "--network", "nets.mine:ood", cwd=write(tmp_path).parent)
    assert done.returncode == 2
    assert "did you mean 'odd'?" in " ".join(done.stderr.split())
    assert not (tmp_path / "results").exists()


@pytest.mark.regression
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("nets_a.mine:fails", "'nets_a.mine:fails' raised ValueError: no such width (mine.py:4)"),
        ("nets_a.mine:text", "'nets_a.mine:text' gives a str, not a torch.nn.Module: return the network"),
        ("nets_a.mine:Holder.gone", "'nets_a.mine:Holder.gone': AttributeError: "),
    ],
)
def test_what_a_function_does_wrong_is_told_with_the_suites_line(tmp_path: Path, target: str, told: str) -> None:
    """Only the error was told; of one that a profile met it was said that bnpbench had a bug."""
    (tmp_path / "nets_a").mkdir()
    text = "def text(classes):\n    return 'net'\ndef fails(classes):\n    raise ValueError('no such width')\n"
    (tmp_path / "nets_a" / "mine.py").write_text(text + "class Holder:\n    pass\n")
    suite = load_suite(write(tmp_path, SUITE.replace("nets.mine:make", target)), allow_plugins=True)
    (cell, *_) = cells = suite.cells(device="cpu", threads=1)
    found = preflight(Preflight(cells, None, True), print)
    assert (found[cell.key].uncounted or "").startswith(f"SuiteError: imported.toml:5: train.network.target: {told}")
    with pytest.raises(SuiteError) as caught:
        profile(Profile(cell, 1, None, 0, tmp_path / "trace.json"))
    assert str(caught.value).startswith(f"{suite.path}:5: train.network.target: {told.partition(' (')[0]}")


@pytest.mark.regression
def test_a_network_of_the_command_line_is_told_by_its_option(tmp_path: Path) -> None:
    """The line of the network whose place it takes was named, and that of another override."""
    more = '[[override]]\nwhen = { method = "gn" }\nset = { epochs = 2 }\n'
    path = write(tmp_path, SUITE + more + "[[override]]\nwhen = { seed = 1 }\nset = { batch_size = 61000 }\n")
    with pytest.raises(SuiteError) as caught:
        load_suite(path, network="nets.mine:maek")
    assert str(caught.value).startswith("--network nets.mine:maek: ")
    assert str(caught.value).endswith("mine.py defines no 'maek' (did you mean 'make'?)")
    with pytest.raises(SuiteError) as caught:
        load_suite(path, network="nets.mine:make")
    assert (caught.value.line, caught.value.key) == (19, "override[1].set.batch_size")
