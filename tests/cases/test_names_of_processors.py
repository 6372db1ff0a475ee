"""Processors without a "model name" were all called by their architecture, and shared an environment."""

from __future__ import annotations

import platform
from typing import Any

import pytest

from bnpbench.execution.executor import usable_cores
from bnpbench.measure import environment

GRAVITON = """processor : 0
CPU implementer : 0x41
CPU variant : 0x1
CPU part : 0xd40

processor : 1
CPU implementer : 0x41
CPU variant : 0x1
CPU part : 0xd40
"""


def named(monkeypatch: pytest.MonkeyPatch, system: str, cpuinfo: str | None, printed: str | None) -> str:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(environment, "_read", lambda path: cpuinfo)
    monkeypatch.setattr(environment, "_printed", lambda *command: printed)
    return environment.cpu_model()


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (("Linux", "model name\t: AMD EPYC\n", None), "AMD EPYC"),
        (("Linux", GRAVITON, None), "arm64 implementer 0x41 variant 0x1 part 0xd40"),
        (("Linux", None, None), "arm64"),
        (("Darwin", None, "Apple M3"), "Apple M3"),
        (("Darwin", None, None), "arm64"),
    ],
)
def test_a_name_tells_processors_apart(monkeypatch: pytest.MonkeyPatch, told: Any, name: str) -> None:
    assert named(monkeypatch, *told) == name


def test_a_process_uses_the_cores_that_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    def cores(affinity: list[int] | None) -> list[int]:
        return usable_cores({"hardware": {"cores": 4}, "details": {"affinity": affinity}})

    assert cores(None) == [0, 1, 2, 3]
    assert cores([2]) == [2]
    assert cores(list(range(8))) == [0, 1, 2, 3]
