"""What is known of a machine without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bnpbench.measure.known import keep, kept, kind_of, processor_name
from bnpbench.records.documents import Rates

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


EPYC = """processor : 0
vendor_id : AuthenticAMD
cpu family : 25
model : 17
model name : AMD EPYC
cpu MHz : 2596.138
cache size : 1024 KB
core id : 0
flags : sse2 avx2 avx512f
bogomips : 5192.27
"""


def test_kinds_are_told_apart_by_what_a_compiler_goes_by() -> None:
    """Not by what differs between the cores of a machine, or from one boot to the next."""
    again = EPYC.replace(": 0", ": 1").replace("2596", "3100").replace("5192", "5190")
    assert kind_of(EPYC, "AMD EPYC") == kind_of(EPYC + again, "AMD EPYC")
    others = [EPYC.replace(" avx512f", ""), EPYC.replace(": 17", ": 1"), EPYC.replace("1024", "512"), GRAVITON, ""]
    others.append(GRAVITON.replace("0xd40", "0xd4f"))
    names = {kind_of(one, "AMD EPYC") for one in [EPYC, *others]} | {kind_of("", "Apple M3")}
    assert len(names) == len(others) + 2


def test_it_is_known_without_torch() -> None:
    code = "import sys; from bnpbench.measure.known import known; assert known().id; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_kept_is_found_in_the_same_environment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = Rates(measured="2026-01-02", libraries=[], rates=[])
    assert kept("0123456789ab") is None
    path = keep("0123456789ab", found)
    assert kept("0123456789ab") == found
    assert kept("ba9876543210") is None
    assert path.parent.stat().st_mode & 0o077 == 0
    path.write_text("{")
    assert kept("0123456789ab") is None
