"""What would be recorded of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnpbench.measure import environment, known, rates
from bnpbench.records.documents import Environment, Rates
from tests.support.command import called

KNOWN = Environment.model_validate({"id": "0123456789ab", "hardware": {"cpu": "Abacus"}})
RATES = Rates.model_validate(
    {
        "measured": "2026-01-02",
        "libraries": ["mkl"],
        "rates": [
            {"device": "cpu", "threads": threads, "quantity": quantity, "repetitions": 5}
            | {"median": median, "low": median / 2, "high": 2 * median}
            for threads, quantity, median in [(1, "float32", 3e9), (2, "bandwidth", 4e10), (None, "operators", 5e4)]
        ]
        + [
            {"device": "cpu", "threads": 1, "quantity": "core", "repetitions": 5, "kernel": "oneDNN"}
            | {"median": 6e9, "low": 5e9, "high": 7e9}
        ],
    }
)


@pytest.fixture(autouse=True)
def of_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "describe", lambda: KNOWN)
    monkeypatch.setattr(rates, "measure", lambda: RATES)


def test_what_is_there_is_told(tmp_path: Path) -> None:
    done = called("env", cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[:2] == ["id: 0123456789ab", "hardware:"]
    assert "  cpu: Abacus" in lines
    assert lines[-1] == "rates: not measured; `bnpbench env --measure` does, and later runs record them"


def test_rates_are_kept_and_shown_with_their_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, Rates] = {}
    monkeypatch.setattr(known, "keep", lambda identity, found: kept.update({identity: found}))
    lines = called("env", "--measure", cwd=tmp_path).stdout.splitlines()
    assert kept == {"0123456789ab": RATES}
    assert lines[-6:] == [
        "rates, measured 2026-01-02:",
        "  by mkl",
        "  cpu, 1 thread: float32 3.0 GFLOP/s (1.5 to 6.0, 5 times)",
        "  cpu, 2 threads: bandwidth 40.0 GB/s (20.0 to 80.0, 5 times)",
        "  cpu: operators 50.0 thousand a second (25.0 to 100.0, 5 times)",
        "  cpu, 1 thread: core 6.0 GFLOP/s by oneDNN (5.0 to 7.0, 5 times)",
    ]


def test_rates_that_cannot_be_kept_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(known, "keep", refuse)
    done = called("env", "--measure", cwd=tmp_path)
    assert done.returncode == 2
    assert "the rates cannot be kept in the cache folder: " in done.stderr
