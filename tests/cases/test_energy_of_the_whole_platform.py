"""Some processors list the whole platform beside their package: its energy was added to that of its own part."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bnpbench.measure import machine


def test_only_packages_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in (("0", "package-0"), ("0:0", "core"), ("1", "psys"), ("10", "package-10")):
        (domain := tmp_path / f"intel-rapl:{place}").mkdir()
        (domain / "name").write_text(f"{name}\n")
        (domain / "energy_uj").write_text("0\n")
    monkeypatch.setattr(machine, "RAPL", tmp_path)
    meter = machine.energy_meter(torch.device("cpu"))
    for domain in tmp_path.iterdir():
        (domain / "energy_uj").write_text("1000000\n")
    assert meter() == pytest.approx(2.0)
