"""The standard streams: missing, full, abandoned."""

from __future__ import annotations

from pathlib import Path

from bnpbench.streams import unfailing


def test_what_a_full_disk_does_not_take_is_dropped() -> None:
    with open("/dev/full", "w") as full:
        stream = unfailing(full)
        print("nothing of this arrives", file=stream, flush=True)
        stream.close()


def test_a_stream_that_takes_all_gets_all(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as file:
        stream = unfailing(file)
        for number in range(1000):
            print(f"line {number} \udcff", file=stream)
        stream.close()
    lines = path.read_text(encoding=stream.encoding).splitlines()
    assert lines == [f"line {number} \\udcff" for number in range(1000)]
