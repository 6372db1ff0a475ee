"""The way to a Ray cluster, where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.command import bnpbench, suite
from tests.support.raynodes import RAY


def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\")\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = bnpbench("run", suite(tmp_path), "--cluster", "auto", cwd=tmp_path, env={"PYTHONPATH": path})
    assert done.returncode == 2
    assert "pip install 'bnpbench[cluster]'" in done.stderr


@pytest.mark.alone
@pytest.mark.skipif(not RAY.exists(), reason="Ray is not installed: pip install -e '.[cluster]'")
@pytest.mark.parametrize("address", ["127.0.0.1:9", "nowhere", "ray://127.0.0.1:10001"])
def test_an_address_without_a_cluster(address: str, tmp_path: Path) -> None:
    done = bnpbench("run", suite(tmp_path), "--cluster", address, cwd=tmp_path)
    assert done.returncode == 2
    assert f"--cluster {address}: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.alone
@pytest.mark.regression
@pytest.mark.skipif(not RAY.exists(), reason="Ray is not installed: pip install -e '.[cluster]'")
def test_no_cluster_here_is_told_in_our_words(tmp_path: Path) -> None:
    """Ray's own spoke of an option of its own."""
    done = bnpbench("run", suite(tmp_path), "--cluster", "auto", cwd=tmp_path, env={"RAY_TMPDIR": str(tmp_path)})
    assert done.returncode == 2
    assert "--cluster auto: no Ray cluster runs on this machine; start one with `ray start --head`" in done.stderr
    assert "--address" not in done.stderr
