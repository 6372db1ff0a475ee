"""The parent's side: children that cannot be started, do not end, or end before they have answered."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bnpbench import load_suite, read_results
from bnpbench.errors import ResultsError, SuiteError
from bnpbench.execution.children import ask
from bnpbench.execution.messages import Describe, Pickled, Profile
from bnpbench.measure.known import processor_kind
from tests.support.command import SUITE, bnpbench, suite


@pytest.mark.parametrize("target", ["treasure", "absent"])
def test_a_log_is_written_through_no_link(target: str, tmp_path: Path) -> None:
    """A folder of results may be a stranger's, and so may be the links in it."""
    log, treasure = tmp_path / "logs" / "log", tmp_path / "treasure"
    log.parent.mkdir()
    treasure.write_text("dear")
    log.symlink_to(tmp_path / target)
    with pytest.raises(RuntimeError, match="exit code 70"):
        ask(Pickled(b"no request"), log=log)
    assert treasure.read_text() == "dear"
    assert not (tmp_path / "absent").exists()
    assert "UnpicklingError" in log.read_text()
    assert not log.is_symlink()


def test_a_long_name_of_the_temporary_folder_is_none_of_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("t" * 120)
    folder.mkdir()
    done = bnpbench("run", suite(tmp_path), cwd=tmp_path, env={"TMPDIR": str(folder)})
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())


@pytest.mark.parametrize("kilobytes", [700_000, 3_000_000])
def test_little_memory_is_no_bug(kilobytes: int, tmp_path: Path) -> None:
    command = f"ulimit -v {kilobytes}; exec {sys.executable} -m bnpbench run {suite(tmp_path)} --quiet"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "ulimit -v" in done.stderr or "memory" in done.stderr
    assert "bug in bnpbench" not in done.stderr


HANGING = """
import sys, threading, time
from typing import Literal
from bnpbench import MethodPlugin


class Hanging(MethodPlugin):
    kind: Literal["hanging"]

    def layer(self, features, spatial_dims, site):
        from torch import nn

        print("x" * 3_000_000, flush=True)
        threading.Thread(target=time.sleep, args=(600,)).start()
        return nn.Identity()
"""


def test_a_child_that_has_answered_but_does_not_end_is_ended(tmp_path: Path) -> None:
    """And what it printed does not fill the disk."""
    (tmp_path / "hanging.py").write_text(HANGING)
    text = SUITE.replace('method = ["vanilla", "bnp"]\nseed = [1, 2]', 'method = ["hanging"]').replace(
        'name = "tiny"', 'name = "tiny"\nplugins = ["hanging.py"]'
    )
    begin = time.monotonic()
    done = bnpbench("run", suite(tmp_path, text), "--allow-plugins", "--timeout", "100", cwd=tmp_path)
    assert time.monotonic() - begin < 100
    assert done.returncode == 0, done.stderr
    assert set(read_results(tmp_path / "results").cells.status) == {"ok"}
    (log,) = tmp_path.glob("results/tiny/*/logs/*.log")
    assert log.stat().st_size < 2**20


STOPPED = """
import os, signal
from typing import Literal
from bnpbench import MethodPlugin


class Stopped(MethodPlugin):
    kind: Literal["stopped"]

    def layer(self, features, spatial_dims, site):
        import torch

        def half(descriptor, data):
            write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGSTOP)

        if not torch.empty(0).is_meta:  # as where it is only looked at
            write, os.write = os.write, half
        return torch.nn.Identity()
"""


def test_a_child_that_is_stopped_in_the_middle_of_a_message_is_ended(tmp_path: Path) -> None:
    """The run waited for the rest of it, whatever --timeout said."""
    (tmp_path / "stopped.py").write_text(STOPPED)
    text = SUITE.replace('method = ["vanilla", "bnp"]\nseed = [1, 2]', 'method = ["stopped"]').replace(
        'name = "tiny"', 'name = "tiny"\nplugins = ["stopped.py"]'
    )
    done = bnpbench("run", suite(tmp_path, text), "--allow-plugins", "--timeout", "5", cwd=tmp_path, timeout=100)
    assert done.returncode == 3, done.stderr
    assert set(read_results(tmp_path / "results").cells.status) == {"timeout"}


@pytest.mark.regression
def test_a_process_that_cannot_write_its_log_says_so(tmp_path: Path) -> None:
    """It ended as a bug of bnpbench, with 70."""
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match=r"file/below\.log: cannot be written"):
        ask(Describe(), log=tmp_path / "file" / "below.log")


BROKEN = """
from typing import Literal
from bnpbench import NetworkPlugin


class Broken(NetworkPlugin):
    kind: Literal["broken"]

    def build(self, normalization, input_shape, classes):
        raise KeyError("width")
"""


@pytest.mark.regression
def test_an_error_of_a_plugin_that_ends_a_request_is_told_with_its_line(tmp_path: Path) -> None:
    """As where a step is profiled. It ended as a bug of bnpbench, with 70."""
    (tmp_path / "broken.py").write_text(BROKEN)
    text = SUITE.replace('network = { kind = "fc", hidden = [9, 8] }', 'network = "broken"')
    loaded = load_suite(
        suite(tmp_path, text.replace("[train]", 'plugins = ["broken.py"]\n[train]', 1)), allow_plugins=True
    )
    (cell, *_) = loaded.cells(device="cpu", threads=1, only=["method=vanilla"])
    with pytest.raises(SuiteError, match=r"broken\.py:10: Broken\.build raised KeyError: 'width'"):
        ask(Profile(cell, 1, None, 0, tmp_path / "trace.json"), loaded.plugins)


COMPILER = """
from bnpbench.execution.children import ask
from bnpbench.execution.messages import Request


class Compiler(Request[str]):
    def answer(self, tell):
        from torch._inductor import config
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        return f"{cache_dir()} {config.cpp.vec_isa_ok}"
"""


@pytest.mark.parametrize(
    ("variable", "folder"), [("XDG_CACHE_HOME", "bnpbench/compiled"), ("TORCHINDUCTOR_CACHE_DIR", ".")]
)
def test_a_kind_of_processor_has_its_own_compiled_code(variable: str, folder: str, tmp_path: Path) -> None:
    """Torch finds a library by its source and the options of g++, which makes code for the processor at hand.

    Nor is what the processor says of its vector units tried for each of the folders.
    """
    place, untried = compiler(tmp_path, variable)
    assert Path(place) == tmp_path / folder / processor_kind()
    assert untried == "True"


def compiler(folder: Path, variable: str, before: str = "pass") -> list[str]:
    """What a child says of its compiler, of a process that does something ``before`` with a variable as the folder."""
    (folder / "compiler.py").write_text(COMPILER)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TORCHINDUCTOR_")}
    variables["PYTHONDONTWRITEBYTECODE"] = "1"  # where files are cut off, these would be, too
    done = subprocess.run(
        [sys.executable, "-c", f"import compiler; {before}; print(compiler.ask(compiler.Compiler()))"],
        env=variables | {variable: str(folder), "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


UNWRITABLE = Path("/proc/self/fd")  # for anyone; a link to it is a folder that is there


@pytest.mark.regression
@pytest.mark.skipif(not UNWRITABLE.exists(), reason="no folder that the administrator cannot write to is known here")
def test_a_cache_folder_that_cannot_be_written_to_is_not_taken(tmp_path: Path) -> None:
    """It was there, and every compiled cell ended in torch's error."""
    (tmp_path / "bnpbench/compiled").mkdir(parents=True)
    (tmp_path / "bnpbench/compiled" / processor_kind()).symlink_to(UNWRITABLE)
    place, _ = compiler(tmp_path, "XDG_CACHE_HOME")
    assert Path(place).name.startswith("torchinductor_")


@pytest.mark.regression
def test_a_cache_folder_on_a_full_disk_is_not_taken(tmp_path: Path) -> None:
    """A file can be made there, but not filled: as where none may be long."""
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))"
    place, _ = compiler(tmp_path, "XDG_CACHE_HOME", full)
    assert Path(place).name.startswith("torchinductor_")


@pytest.mark.regression
@pytest.mark.parametrize("linked", [False, True])
def test_a_cache_folder_of_ones_own_that_cannot_be_is_refused(linked: bool, tmp_path: Path) -> None:
    """Torch's import failed, the second time for another reason, and every run ended as a bug of bnpbench, with 70."""
    folder = tmp_path / "file"
    if linked:
        folder = tmp_path
        (folder / processor_kind()).symlink_to(UNWRITABLE)
    else:
        folder.touch()
    done = bnpbench("run", suite(tmp_path), cwd=tmp_path, env={"TORCHINDUCTOR_CACHE_DIR": str(folder)})
    assert done.returncode == 2, done.stderr
    assert f"TORCHINDUCTOR_CACHE_DIR = {folder}: no compiled code can be kept there (" in done.stderr
    assert "or unset it" in done.stderr
    assert not (tmp_path / "results").exists()
