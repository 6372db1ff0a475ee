"""Where results go: files, links, pipes and devices; paths that begin at home."""

from __future__ import annotations

import inspect
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer

from bnpbench import load_suite, read_results
from bnpbench.cache import user_cache
from bnpbench.cli.app import app
from bnpbench.cli.output import from_home, write
from bnpbench.datasets.storage import root
from bnpbench.errors import BnpbenchError
from bnpbench.execution.options import Options
from bnpbench.results.schema import digest
from tests.support.command import SUITE, called, suite
from tests.support.made_results import Made, epochs
from tests.support.terminals import shown


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    file, other = tmp_path / "a.md", tmp_path / "b.md"
    file.write_text("old")
    file.chmod(0o600)
    os.link(file, other)  # shows that the file is another one afterwards
    write("new", file)
    assert (file.read_text(), other.read_text()) == ("new\n", "old")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.md", "b.md"]


@pytest.mark.parametrize("there", [True, False])
def test_what_is_behind_a_link_is_written(there: bool, tmp_path: Path) -> None:
    real, link = tmp_path / "folder" / "real.md", tmp_path / "link.md"
    real.parent.mkdir()
    if there:
        real.write_text("old")
    link.symlink_to(Path("folder") / "real.md")
    write("new", link)
    assert link.is_symlink()
    assert real.read_text() == "new\n"


@pytest.mark.parametrize("command", [["report"], ["report", "--format", "json"], ["compare", "results", "results"]])
def test_columns_that_are_not_known_are_named_once(command: list[str], tmp_path: Path) -> None:
    made = Made(tmp_path / "results")
    for size in (8, 16):
        made.cell("bnp", size, rows=epochs([1.0] * 6))
    made.read()
    for kind, column in (("cells", "status"), ("epochs", "epoch")):
        for path in made.store.folder.glob(f"{kind}/*.parquet"):
            table, metadata = pq.read_table(path), pq.read_metadata(path).metadata
            wider = table.append_column("colour", table[column])
            pq.write_table(wider.replace_schema_metadata({**metadata, b"columns": digest(wider.column_names)}), path)
    done = called(*command, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == (
        "bnpbench: warning: columns or fields that this version does not know are left out: cells.colour, "
        "epochs.colour; another version wrote them\n"
    )
    assert "colour" not in done.stdout


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write("new", pipe)
    reader.join()
    assert read == ["new\n"]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_device_stays_and_one_that_is_full_says_so(tmp_path: Path) -> None:
    for name in ("null", "full"):
        (tmp_path / name).symlink_to(f"/dev/{name}")  # were the device itself at stake, so were this machine
    write("new", tmp_path / "null")
    assert stat.S_ISCHR((tmp_path / "null").stat().st_mode)
    with pytest.raises(BnpbenchError, match=r"--output .*full: cannot be written \(No space left on device\)"):
        write("new", tmp_path / "full")


def test_where_stdout_goes_is_not_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    print("before")
    write("new", Path("/dev/stdout"))
    print("after")
    assert capfd.readouterr().out == "before\nnew\nafter\n"


def test_a_loop_of_links_is_an_error_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(BnpbenchError, match="cannot be written"):
        write("new", tmp_path / "a")


def paths() -> list[Any]:
    """Every option and argument of every command that is a path."""
    commands = [info.callback for info in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        commands += [info.callback for info in group.typer_instance.registered_commands]
        commands.append(group.typer_instance.registered_callback.callback)
    found = []
    for command in commands:
        assert command is not None
        for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
            if "Path" in str(parameter.annotation):
                (option,) = parameter.annotation.__metadata__
                found.append(pytest.param(option, id=f"{command.__name__} {name}"))
    return found


@pytest.mark.parametrize("option", paths())
def test_every_path_of_the_command_line_may_begin_at_home(option: Any) -> None:
    assert isinstance(option, typer.models.ParameterInfo)
    assert option.callback is from_home


def test_a_path_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("BNPBENCH_DATA", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "~/there")
    assert from_home(Path("~/x")) == tmp_path / "x"
    assert from_home([Path("~/x"), Path("y")]) == [tmp_path / "x", Path("y")]
    assert from_home(None) is None
    suite(tmp_path)
    assert load_suite("~/tiny.toml").name == "tiny"
    made = Made(tmp_path / "results", "tiny")
    made.cell("bnp", rows=epochs([1.0, 1.0]))
    made.read()
    assert len(read_results("~/results").cells) == 1
    options = Options(out=Path("~/out"), data_dir=Path("~/data"))
    assert (options.out, options.data_dir) == (tmp_path / "out", tmp_path / "data")
    assert root() == tmp_path / "there"
    assert root(Path("~/data")) == tmp_path / "data"
    assert user_cache() == tmp_path / "there" / "bnpbench"


def made_results(folder: Path) -> None:
    results = Made(folder / "results", "tiny")
    results.cell("bnp", rows=epochs([1.0, 1.0], [0.5, 0.5]))
    results.read()


@pytest.mark.regression
@pytest.mark.parametrize("output", [".", "", "/", "folder"])
@pytest.mark.parametrize("command", [["report"], ["compare", "results", "results"]])
def test_a_folder_is_no_file_for_a_report(command: list[str], output: str, tmp_path: Path) -> None:
    """It ended as a bug of bnpbench, with 70."""
    made_results(tmp_path)
    (tmp_path / "folder").mkdir()
    done = called(*command, "--output", output, cwd=tmp_path)
    assert done.returncode == 2
    assert "is a folder; name a file" in done.stderr
    assert not list(tmp_path.glob(".*"))


@pytest.mark.regression
def test_a_report_that_cannot_be_moved_into_place_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_results(tmp_path)

    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    done = called("report", "--output", "a.md", cwd=tmp_path)
    assert done.returncode == 2
    assert "--output a.md: cannot be written (Permission denied)" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


MEASURED = Path(__file__).parents[1] / "unchanged" / "measured"
COMMANDS = {
    "": 0,
    **{f"{name} --help": 0 for name in ("run", "report", "compare", "verify", "profile", "check", "new", "env")},
    **{f"{name} --help": 0 for name in ("compact", "list", "data", "data get")},
    **{f"list {what}": 0 for what in ("methods", "networks", "datasets", "metrics", "columns", "suites")},
    "list": 2,
    "list method": 2,
    "check quick": 0,
    "check tiny.toml": 0,
    "check tiny.toml --build": 0,
    "check misspelt.toml": 2,
    "check tiny.toml --only method=something-that-no-method-is-called": 2,
    "data": 0,
    "data --data-dir a/folder/whose/name/takes/more/columns/than/the/narrowest/of/these/terminals/has/to/give": 0,
    "data get digits": 0,
    "data get npz": 0,
    "data get cifar": 2,
    "env": 0,
    "report quick": 0,
    "report quick --all": 0,
    "report quick --only method=something": 2,
    "report nowhere": 2,
    "compare quick quick": 0,
    "compare quick nowhere": 2,
    "verify theorem-4 --trials 2": 0,
    "verify theorem-99": 2,
    "new a-suite-with-quite-a-long-name-that-is-written-into-here": 0,
    "new tiny": 2,
    "compact nowhere": 2,
    "run tiny.toml --quiet --device cpu": 0,
    "run tiny.toml --quiet --device tpu": 2,
    "run nowhere/but/in/a/folder/that/has/a/name/of/more/than/sixty/columns/alone/suite.toml": 2,
    "report": 0,
    "profile tiny.toml": 2,
    "profile tiny.toml --only method=bnp --steps 2 --device cpu": 0,
    "compact results": 0,
}
"""Command lines, and how they end."""


@pytest.mark.parametrize("columns", [60, 200])
def test_nothing_is_wider_than_the_terminal(columns: int, tmp_path: Path) -> None:
    suite(tmp_path)
    suite(tmp_path, SUITE.replace("epochs = 2", "epoch = 2"), "misspelt.toml")
    shutil.copytree(MEASURED / "quick", tmp_path / "quick")
    found = shown(list(COMMANDS), cwd=tmp_path, columns=columns)
    assert {line: code for line, (code, _) in found.items()} == COMMANDS
    wide = {
        f"{command}: {line}"
        for command, (_, text) in found.items()
        for line in text.splitlines()
        if len(line) > columns
    }
    assert not wide
    assert all(text.strip() for command, (_, text) in found.items()), found


def test_no_word_of_an_error_is_broken(tmp_path: Path) -> None:
    line = "check tiny.toml --only method=nothing"
    suite(tmp_path)
    narrow, wide = (shown([line], cwd=tmp_path, columns=columns)[line][1] for columns in (60, 200))
    assert narrow.split() == wide.split()
    assert narrow.count("\n") > wide.count("\n")
