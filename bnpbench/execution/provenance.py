"""Versions, and the commit of the repository that holds a suite: read without running anything of that repository.

A repository's own config can name commands that git runs when it is asked for no more than the status
(``core.fsmonitor``, clean filters), and a folder of it can pass for a repository. So the commit is read from the files
under ``.git``, and git compares the work tree as that of a repository that was made here, whose config is ours.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from bnpbench.files import private_folder
from bnpbench.records.rows import CellRow
from bnpbench.version import __version__

GIT_SECONDS = 10.0  # that git may take over one question
TEXT_BYTES = 4096  # of a file under .git that holds a line
PACKED_BYTES = 64 * 2**20  # of packed-refs, which has a line for each branch and tag

# What decides whether two files are alike, and names no command.
_COMPARING = "^core\\.(filemode|symlinks|ignorecase|trustctime|checkstat|autocrlf|eol|precomposeunicode)$"


def provenance(folder: Path) -> CellRow:
    """Columns that are the same for every cell of a run.

    Args:
        folder: of the suite. ``commit`` is what HEAD of its repository points to, null without one; ``dirty`` whether
            files that git tracks differ from it, null where that cannot be told.
    """
    repository = _repository(folder)
    commit = repository.commit() if repository else None
    return {
        "bnpbench": __version__,
        "torch": version("torch"),
        "commit": commit,
        "dirty": repository.dirty(commit) if repository and commit else None,
    }


@dataclass(frozen=True)
class _Repository:
    """A repository with a work tree.

    Attributes:
        tree: the work tree.
        own: where its HEAD and index are.
        common: where its branches, objects and config are: the same folder, but for a linked work tree.
    """

    tree: Path
    own: Path
    common: Path

    def commit(self) -> str | None:
        """What HEAD points to."""
        head = _line(self.own / "HEAD")
        for _ in range(5):  # git follows as many symbolic references
            if head is None or not head.startswith("ref: "):
                break
            name = head.removeprefix("ref: ").strip()
            if not re.fullmatch(r"refs(/[^/\x00-\x20\x7f]+)+", name) or ".." in name:
                return None
            head = _line(self.own / name) or _line(self.common / name) or self._packed(name)
        return head if head is not None and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", head) else None

    def _packed(self, name: str) -> str | None:
        for line in (_read(self.common / "packed-refs", PACKED_BYTES) or "").splitlines():
            if line.endswith(f" {name}"):
                return line.split(" ", 1)[0]
        return None

    def dirty(self, commit: str) -> bool | None:
        """Whether tracked files differ from a commit, submodules aside: they would be asked by their own config.

        Files that a filter converts, as those of Git LFS, are compared as they lie there, by their times if these are
        what git wrote down; where only such files seem to differ nobody knows.
        """
        try:
            with tempfile.TemporaryDirectory(dir=private_folder()) as made:
                return self._dirty(commit, Path(made))
        except OSError:
            return None

    def _dirty(self, commit: str, made: Path) -> bool | None:
        (made / "refs").mkdir()
        (made / "HEAD").write_text(commit + "\n", encoding="ascii")
        hashing = "[extensions]\nobjectFormat = sha256\n" if len(commit) == 64 else ""
        (made / "config").write_text(f"[core]\nrepositoryFormatVersion = 1\n{hashing}", encoding="ascii")
        ask = partial(_git, environment=self._environment(made))
        kept = ask("config", "--file", str(self.common / "config"), "--no-includes", "-z", "--get-regexp", _COMPARING)
        settings = [word for entry in (kept or "").split("\0")[:-1] for word in ("-c", entry.replace("\n", "=", 1))]
        asked = ("--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=all", "--no-renames")
        told = ask(*settings, "status", *asked)
        if not told:
            return None if told is None else False
        differing = [entry[3:] for entry in told.split("\0")[:-1]]
        attributes = ask("check-attr", "-z", "--stdin", "filter", input="\0".join(differing))
        filtered = (attributes or "").split("\0")[2::3]
        return True if len(filtered) != len(differing) or {"unspecified", "unset"} & set(filtered) else None

    def _environment(self, made: Path) -> dict[str, str]:
        """For git in a repository that was made here over the objects and the index of this one."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(made),
            "XDG_CONFIG_HOME": str(made),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_DIR": str(made),
            "GIT_WORK_TREE": str(self.tree),
            "GIT_OBJECT_DIRECTORY": str(self.common / "objects"),
            "GIT_INDEX_FILE": str(self.own / "index"),
            "GIT_OPTIONAL_LOCKS": "0",  # or the index would be written
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
        }


def _repository(folder: Path) -> _Repository | None:
    """That of the nearest folder above with a ``.git``; what looks like a bare one is a folder like others."""
    for tree in (folder.resolve(), *folder.resolve().parents):
        own = tree / ".git"
        if os.path.isfile(own):  # of a submodule or a linked work tree
            link = _line(own) or ""
            own = tree / link.removeprefix("gitdir: ")
        if os.path.isfile(own / "HEAD"):
            common = _line(own / "commondir")
            return _Repository(tree, own, own if common is None else own / common)
    return None


def _line(path: Path) -> str | None:
    """The only line of a small file."""
    text = _read(path, TEXT_BYTES)
    return None if text is None else text.rstrip("\n")


def _read(path: Path, limit: int) -> str | None:
    """A file's text; None where there is no regular file of at most so many bytes."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
                return None
            return file.read(limit).decode(errors="replace")
    except (OSError, ValueError):
        return None


def _git(*command: str, environment: dict[str, str], input: str | None = None) -> str | None:  # noqa: A002
    """What git prints; None where it cannot tell."""
    try:
        done = subprocess.run(
            ["git", *command],
            env=environment,
            cwd=environment["GIT_DIR"],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout
