"""A folder that a stranger made: modules beside the suite that are named like others are imported by no process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import SUITE, bnpbench, environment, suite
from tests.support.plugins import PLUGIN
from tests.support.plugins import SUITE as PLUGIN_SUITE
from tests.support.raynodes import RAY

SCRIPT = Path(sys.executable).with_name("bnpbench")
INSTALLED = ("torch", "torchvision", "numpy", "psutil", "pydantic", "pyarrow", "pandas", "sklearn", "filelock", "ray")
ABSENT = ("opt_einsum", "numexpr", "bottleneck", "evil", "sitecustomize", "usercustomize")  # what others try to import
LATE = ("socket", "selectors", "tempfile", "pickle", "struct", "hashlib", "multiprocessing", "random", "statistics")
PROFILE = ("--only", "method=bnp", "--steps", "1")
by_module = pytest.mark.parametrize("start", ["module"], indirect=True)
"""What bnpbench starts finds its modules in the same way however it was started itself."""


def hostile(folder: Path, names: tuple[str, ...]) -> Path:
    """Fill a folder with modules and plugins of packages; the file in which each tells that it ran."""
    witness = folder.parent / f"{folder.name}-ran"
    for name in names:
        (folder / f"{name}.py").write_text(f"print({name!r}, file=open({str(witness)!r}, 'a'))\nraise ImportError\n")
    package = folder / "evil-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    groups = ("torch.backends", "pydantic", "torch_dynamo_backends", "matplotlib.backend")
    (package / "entry_points.txt").write_text("\n".join(f"[{group}]\nx = evil:x" for group in groups))
    return witness


@pytest.fixture(params=["module", "script"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[str], Path, Path]:
    """How bnpbench is started, the folder in which, and the witness.

    With ``-m`` Python itself begins in the folder, before anything of bnpbench is asked.
    """
    folder = tmp_path / "strange"
    folder.mkdir()
    if request.param == "module":
        return [sys.executable, "-m", "bnpbench"], folder, hostile(folder, (*INSTALLED, *ABSENT, *LATE))
    if not SCRIPT.exists():
        pytest.skip("bnpbench is not installed")
    standard = tuple(sorted(sys.stdlib_module_names - set(sys.builtin_module_names)))
    return [str(SCRIPT)], folder, hostile(folder, (*INSTALLED, *ABSENT, *standard))


def test_no_process_imports_what_lies_in_the_current_folder(start: tuple[list[str], Path, Path]) -> None:
    command, folder, witness = start
    path = suite(folder, SUITE + '[measure]\ninterleave = ["method"]\n')
    every = (
        (["check", path, "--build"], (0, 2)),
        (["run", path, "--seeds", "1"], (0,)),
        (["profile", path, *PROFILE], (0,)),
        (["verify", "lemma-a1", "--trials", "1"], (0,)),
        (["report", "--figures", "figures"], (0,)),
        (["compact"], (0,)),
    )
    for arguments, codes in every if command[0] == str(SCRIPT) else every[1::3]:  # what children import is the same
        done = subprocess.run(
            [*command, *map(str, arguments)], cwd=folder, env=environment(None), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode in codes, (arguments, done.stderr)
        assert not witness.exists(), (arguments, witness.read_text())


SPY = """#!/bin/sh
[ "$6" = --output ] && echo x > "$7"
while [ "$1" != -- ]; do shift; done
exec "$2" "$3" "$4" "$5" 0 "$7"
"""


@by_module
def test_nor_does_the_process_that_py_spy_looks_at(start: tuple[list[str], Path, Path]) -> None:
    command, folder, witness = start
    tool = folder.parent / "bin" / "py-spy"
    tool.parent.mkdir()
    tool.write_text(SPY)
    tool.chmod(0o755)
    done = subprocess.run(
        [*command, "profile", suite(folder), *PROFILE, "--with", "py-spy"],
        cwd=folder,
        env=environment({"PATH": f"{tool.parent}:/usr/bin:/bin"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "svg" in done.stderr, done.stderr  # the steps were run
    assert not witness.exists(), witness.read_text()


@by_module
def test_a_compiled_cell_imports_nothing_of_the_folder(start: tuple[list[str], Path, Path]) -> None:
    command, folder, witness = start
    path = suite(folder, SUITE.replace("batch_size", 'engine = "compiled"\nbatch_size'))
    done = subprocess.run(
        [*command, "run", path, "--only", "method=bnp", "--seeds", "1"], cwd=folder, capture_output=True,
        env=environment({"TORCHINDUCTOR_CACHE_DIR": str(folder.parent / "compiled")}), text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not witness.exists(), witness.read_text()


@by_module
@pytest.mark.alone
@pytest.mark.timeout(900)
@pytest.mark.skipif(not RAY.exists(), reason="Ray is not installed: pip install -e '.[cluster]'")
def test_nor_does_a_worker_of_a_cluster(start: tuple[list[str], Path, Path]) -> None:
    """Ray has workers look first in what was the current folder when a run connected."""
    command, folder, witness = start
    done = subprocess.run(
        [*command, "run", suite(folder), "--cluster", "local"],
        cwd=folder,
        env=environment(None),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not witness.exists(), witness.read_text()


def test_plugins_that_are_allowed_import_their_neighbours(tmp_path: Path) -> None:
    (tmp_path / "epsilons.py").write_text("EPS = 1e-6\n")
    plugin = PLUGIN.replace("eps: float = 1e-6", "eps: float = EPS").replace(
        "from torch import nn\n\n        return nn.RMSNorm(",
        "import lazily\nfrom torch import nn\n\n        return nn.RMSNorm(",
    )
    plugin = plugin.replace("        import lazily\nfrom", "        import lazily\n        from")
    (tmp_path / "lazily.py").write_text("")
    (tmp_path / "mine.py").write_text("from epsilons import EPS\n" + plugin)
    (tmp_path / "own.toml").write_text(PLUGIN_SUITE)
    assert "import lazily" in plugin
    done = bnpbench("run", "own.toml", "--allow-plugins", "--only", "method=rms", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    refused = bnpbench("run", "own.toml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--allow-plugins" in refused.stderr


def test_a_checkout_that_is_not_installed_runs(tmp_path: Path) -> None:
    """Its children find bnpbench as this process did: in the current folder."""
    import bnpbench as package

    shutil.copytree(Path(package.__file__).parent, tmp_path / "bnpbench", ignore=shutil.ignore_patterns("__pycache__"))
    done = bnpbench("run", suite(tmp_path), "--only", "method=bnp", "--seeds", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
