"""What a machine is called."""

from __future__ import annotations

import pytest

from bnpbench.measure.environment import processor_name

GRAVITON = """processor : 0
CPU implementer : 0x41
CPU variant : 0x1
CPU part : 0xd40

processor : 1
CPU implementer : 0x41
CPU variant : 0x1
CPU part : 0xd40
"""


@pytest.mark.regression
@pytest.mark.parametrize(
    ("cpuinfo", "brand", "name"),
    [
        ("model name\t: AMD EPYC\n", None, "AMD EPYC"),
        (GRAVITON, None, "arm64 implementer 0x41 variant 0x1 part 0xd40"),
        ("", None, "arm64"),
        ("", "Apple M3", "Apple M3"),
        ("", "", "arm64"),
    ],
)
def test_a_name_tells_processors_apart(cpuinfo: str, brand: str | None, name: str) -> None:
    """Those without a "model name" were all called by their architecture, and shared an environment."""
    assert processor_name(cpuinfo, brand, "arm64") == name
