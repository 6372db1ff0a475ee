"""The commit of a suite's repository, and whether it is clean: as git says, and nothing of the repository is run."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from bnpbench.execution.provenance import provenance
from tests.support.command import SUITE, bnpbench, suite

QUIET = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *command: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *who, *command], cwd=folder, env={**os.environ, **QUIET}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def clone(folder: Path, *options: str) -> Path:
    """A repository of one commit with a file in a subfolder."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main", *options)
    (folder / "suites").mkdir()
    (folder / "suites" / "a.toml").write_text("a")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def told(folder: Path) -> tuple[str | None, bool | None]:
    found = provenance(folder)
    return found["commit"], found["dirty"]


@pytest.mark.parametrize("form", [(), ("--object-format=sha256",)])
def test_a_clone_and_what_becomes_of_it(tmp_path: Path, form: tuple[str, ...]) -> None:
    folder = clone(tmp_path / "r", *form)
    head = git(folder, "rev-parse", "HEAD")
    inner = folder / "suites"
    assert told(inner) == (head, False)
    (folder / "untracked").write_text("x")
    os.utime(inner / "a.toml", (1, 1))  # touched, not changed
    assert told(inner) == (head, False)
    (inner / "a.toml").write_text("b")
    assert told(inner) == (head, True)
    git(folder, "add", ".")
    assert told(inner) == (head, True)
    git(folder, "commit", "-q", "-m", "second")
    second = git(folder, "rev-parse", "HEAD")
    assert told(inner) == (second, False)
    git(folder, "gc", "-q")
    git(folder, "pack-refs", "--all")
    assert not (folder / ".git/refs/heads/main").exists()
    assert told(inner) == (second, False)
    git(folder, "checkout", "-q", "--detach", head)
    assert told(inner) == (head, False)
    (inner / "a.toml").unlink()
    assert told(inner) == (head, True)


def test_linked_work_trees_and_submodules(tmp_path: Path) -> None:
    folder = clone(tmp_path / "r")
    git(folder, "worktree", "add", "-q", "-b", "topic/x", str(tmp_path / "linked"))
    git(tmp_path / "linked", "commit", "-q", "--allow-empty", "-m", "there")
    assert told(tmp_path / "linked") == (git(tmp_path / "linked", "rev-parse", "HEAD"), False)
    assert told(folder) == (git(folder, "rev-parse", "HEAD"), False)
    outer = clone(tmp_path / "outer")
    git(outer, "submodule", "add", "-q", str(folder), "sub")
    git(outer, "commit", "-q", "-m", "with it")
    assert told(outer / "sub") == (git(folder, "rev-parse", "HEAD"), False)
    (outer / "sub/suites/a.toml").write_text("changed")
    assert told(outer / "sub") == (git(folder, "rev-parse", "HEAD"), True)
    assert told(outer) == (git(outer, "rev-parse", "HEAD"), False)  # nothing is asked inside a submodule


def test_where_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert told(tmp_path) == (None, None)
    git(tmp_path, "init", "-q")
    assert told(tmp_path) == (None, None)  # no commit yet
    folder = clone(tmp_path / "r")
    head = git(folder, "rev-parse", "HEAD")
    (folder / ".git/index").write_bytes(b"DIRC")
    assert told(folder) == (head, None)


def test_variables_of_a_hook_name_no_other_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = clone(tmp_path / "ours"), clone(tmp_path / "other")
    git(ours, "commit", "-q", "--allow-empty", "-m", "more")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.fsmonitor=touch {tmp_path}/ran'")
    assert told(ours)[1] is False
    monkeypatch.delenv("GIT_DIR")
    assert told(ours)[0] == git(ours, "rev-parse", "HEAD")
    assert not (tmp_path / "ran").exists()


def test_files_that_a_filter_converts_are_not_called_changed(tmp_path: Path) -> None:
    folder = clone(tmp_path / "r")
    (folder / ".gitattributes").write_text("*.bin filter=upper\n")
    (folder / "x.bin").write_text("text")
    git(folder, "-c", "filter.upper.clean=tr a-z A-Z", "add", ".")
    git(folder, "commit", "-q", "-m", "filtered")
    os.utime(folder / "x.bin", (1, 1))
    assert told(folder)[1] is None
    (folder / "suites/a.toml").write_text("b")
    assert told(folder)[1] is True


def test_modes_do_not_count_where_the_repository_says_so(tmp_path: Path) -> None:
    folder = clone(tmp_path / "r")
    (folder / "suites/a.toml").chmod(0o755)
    assert told(folder)[1] is True
    git(folder, "config", "core.filemode", "false")
    assert told(folder)[1] is False


def hostile(folder: Path) -> Path:
    """A clone that runs a command whenever git is asked for its status, and a bare repository inside; the witness."""
    witness = folder.parent / "ran"
    evil = folder.parent / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {witness}\ncat\n")
    evil.chmod(0o755)
    clone(folder)
    (folder / ".gitattributes").write_text(
        "*.toml filter=evil diff=evil working-tree-encoding=UTF-16\n*.bin filter=evil\n"
    )
    (folder / "x.bin").write_text("x")
    git(folder, "add", "x.bin")
    git(folder, "commit", "-q", "-m", "more")
    for inner in (folder / ".git", folder / "suites"):
        if inner.name == "suites":  # a bare one, as any folder of a clone can be
            for name in ("HEAD", "objects", "refs"):
                subprocess.run(["cp", "-r", folder / ".git" / name, inner / name], check=True)
        (inner / "hooks").mkdir(exist_ok=True)
        (inner / "hooks/post-index-change").symlink_to(evil)
        with (inner / "config").open("a") as file:
            file.write(
                f"[core]\nfsmonitor = {evil}\nhooksPath = {inner}/hooks\nsshCommand = {evil}\npager = {evil}\n"
                f"worktree = {folder}\nattributesFile = {folder}/.gitattributes\nalternateRefsCommand = {evil}\n"
                f'[filter "evil"]\nclean = {evil}\nprocess = {evil}\nsmudge = {evil}\nrequired = true\n'
                f'[diff]\nexternal = {evil}\n[diff "evil"]\ntextconv = {evil}\n[alias]\nstatus = !{evil}\n'
                f"[gpg]\nprogram = {evil}\n"
            )
    for path in (folder / "x.bin", folder / "suites/a.toml"):
        os.utime(path, (1, 1))  # so that git must read it, through the filter
    return witness


def test_nothing_of_a_hostile_clone_runs(tmp_path: Path) -> None:
    witness = hostile(tmp_path / "r")
    commit = (tmp_path / "r/.git/refs/heads/main").read_text().strip()
    assert not witness.exists()
    assert told(tmp_path / "r/suites")[0] == commit
    assert told(tmp_path / "r")[0] == commit
    assert not witness.exists()
    done = bnpbench("run", suite(tmp_path / "r/suites", SUITE), "--seeds", "1", cwd=tmp_path / "r/suites")
    assert done.returncode == 0, done.stderr
    assert not witness.exists()
    subprocess.run(["git", "status"], cwd=tmp_path / "r", capture_output=True, check=False)
    assert witness.exists()  # the trap is one


def test_nothing_runs_in_a_submodule(tmp_path: Path) -> None:
    outer = clone(tmp_path / "outer")
    git(outer, "submodule", "add", "-q", str(clone(tmp_path / "r")), "sub")
    git(outer, "commit", "-q", "-m", "with it")
    git(outer / "sub", "config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    assert told(outer)[1] is False
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "head",
    ["", "ref: ../../secret", "ref: refs/heads/../../../secret", "ref: refs/heads/\0", "x" * 10_000, "ref: HEAD"],
)
def test_a_head_that_is_none(tmp_path: Path, head: str) -> None:
    folder = clone(tmp_path / "r")
    (tmp_path / "secret").write_text("a" * 40)
    (folder / ".git/HEAD").write_text(head)
    assert told(folder) == (None, None)


@pytest.mark.parametrize("place", ["HEAD", "commondir", "packed-refs", "config", "index"])
def test_a_pipe_under_git_is_not_waited_for(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bnpbench.execution.provenance.GIT_SECONDS", 1.0)
    folder = clone(tmp_path / "r")
    git(folder, "pack-refs", "--all")
    (folder / ".git" / place).unlink(missing_ok=True)
    os.mkfifo(folder / ".git" / place)
    begin = time.monotonic()
    told(folder)
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("link", ["", "gitdir: ", "gitdir: " + "x" * 4000, "gitdir: \0", "gitdir: ."])
def test_a_git_file_that_leads_nowhere(tmp_path: Path, link: str) -> None:
    (tmp_path / ".git").write_text(link)
    assert told(tmp_path) == (None, None)
