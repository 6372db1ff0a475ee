"""The processor's energy counter begins anew after some hundred kilojoules: an epoch across that had less than none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bnpbench.measure import machine


def test_energy_goes_on_where_its_counter_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domains = [tmp_path / f"intel-rapl:{number}" for number in range(2)]
    for domain in domains:
        domain.mkdir()
        (domain / "name").write_text(f"package-{domain.name[-1]}\n")
        (domain / "max_energy_range_uj").write_text("10000000\n")
        (domain / "energy_uj").write_text("9000000\n")
    monkeypatch.setattr(machine, "RAPL", tmp_path)
    meter = machine.energy_meter(torch.device("cpu"))
    assert meter() == 0
    (domains[0] / "energy_uj").write_text("500000\n")
    (domains[1] / "energy_uj").write_text("9250000\n")
    assert meter() == pytest.approx(1.5 + 0.25)
