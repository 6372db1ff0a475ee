"""Where a cluster has room for workers, told from what Ray says of its nodes; what comes back from one."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bnpbench import load_suite
from bnpbench.errors import DeviceError
from bnpbench.execution.cluster.connection import Node
from bnpbench.execution.cluster.executor import Remote, device_of, places_on
from bnpbench.execution.cluster.host import Report, device_number
from bnpbench.execution.executor import share
from bnpbench.execution.messages import RunBlock
from bnpbench.suite import Suite
from tests.support.command import SUITE, suite

HEAD, PLAIN, GPUS = Node("0" * 56, 0, 0), Node("12ab34cd" * 7, 8, 0), Node("ffeeddcc" * 7, 8, 2)


def load(folder: Path, devices: str = '["auto"]') -> Suite:
    return load_suite(suite(folder, f"{SUITE}device = {devices}\n"))


@pytest.mark.parametrize(
    ("device", "devices", "jobs", "names"),
    [
        ("cpu", '["auto"]', 1, ["node-12ab34cd", "node-ffeeddcc"]),
        ("cpu", '["auto"]', 2, ["node-12ab34cd/1", "node-12ab34cd/2", "node-ffeeddcc/1", "node-ffeeddcc/2"]),
        ("cuda", '["auto"]', 1, ["node-ffeeddcc/1", "node-ffeeddcc/2"]),
        ("cpu", '["cpu", "cuda"]', 1, ["node-12ab34cd", "node-ffeeddcc/1", "node-ffeeddcc/2"]),
    ],
)
def test_a_gpu_is_a_place_and_so_is_a_node_without(
    tmp_path: Path, device: str, devices: str, jobs: int, names: list[str]
) -> None:
    places = places_on([HEAD, PLAIN, GPUS], device, load(tmp_path, devices), jobs)
    assert [place.name for place in places] == names
    assert {place.node for place in places if place.gpu} == ({GPUS} if "cuda" in device + devices else set())
    assert HEAD not in {place.node for place in places}


def test_no_more_places_than_cpus(tmp_path: Path) -> None:
    assert len(places_on([PLAIN], "cpu", load(tmp_path), 20)) == 8


@pytest.mark.parametrize(
    ("asked", "nodes", "device"),
    [
        ("auto", [PLAIN], "cpu"),
        ("auto", [PLAIN, GPUS], "cuda"),
        ("cpu", [GPUS], "cpu"),
        ("cuda", [PLAIN, GPUS], "cuda"),
    ],
)
def test_what_auto_means(tmp_path: Path, asked: str, nodes: list[Node], device: str) -> None:
    assert device_of(asked, load(tmp_path), nodes) == device


@pytest.mark.parametrize(
    ("asked", "devices", "words"),
    [("cuda", '["auto"]', "--device cuda: no node"), ("auto", '["cuda"]', 'device = "cuda": no node')],
)
def test_a_gpu_that_no_node_has(tmp_path: Path, asked: str, devices: str, words: str) -> None:
    with pytest.raises(DeviceError, match=words):
        device_of(asked, load(tmp_path, devices), [HEAD, PLAIN])


@pytest.mark.parametrize("asked", ["cuda:0", "tpu"])
def test_which_gpu_is_rays_to_say(tmp_path: Path, asked: str) -> None:
    with pytest.raises(DeviceError, match="auto, cpu or cuda"):
        device_of(asked, load(tmp_path), [GPUS])


@pytest.mark.parametrize(
    ("assigned", "visible", "number"),
    [([], None, None), (["3"], None, 3), (["3"], "1,3", 1), (["GPU-b"], "GPU-a,GPU-b", 1)],
)
def test_the_number_of_the_gpu_that_was_assigned(assigned: list[str], visible: str | None, number: int | None) -> None:
    assert device_number(assigned, visible) == number


@pytest.mark.parametrize(
    ("cores", "affinity", "places", "shares"),
    [
        (4, [0, 1, 2, 3, 4, 5, 6, 7], 1, [None]),
        (4, [0, 1, 2, 3, 4, 5, 6, 7], 2, [(0, 1), (2, 3)]),
        (4, [8, 9, 10, 11], 2, [(8, 9), (10, 11)]),
        (4, None, 3, [(0,), (1,), (2,)]),
        (2, [0, 1], 3, [(0,), (1,), (0,)]),
    ],
)
def test_the_cores_of_a_machine_are_shared_out(
    cores: int, affinity: list[int] | None, places: int, shares: list[tuple[int, ...] | None]
) -> None:
    environment = {"hardware": {"cores": cores}, "details": {"affinity": affinity}}
    assert [share(environment, place, places) for place in range(places)] == shares


def test_what_comes_back_from_a_node_is_written_through_no_link(tmp_path: Path) -> None:
    treasure, states, log = tmp_path / "treasure", tmp_path / "checkpoints", tmp_path / "log"
    treasure.write_text("dear")
    states.mkdir()
    (block,) = load(tmp_path).blocks(load(tmp_path).cells(device="cpu", threads=1, only=["method=bnp", "seed=1"]))
    key = block.cells[0].key
    for path in (log, states / f"{key}.pt", states / f".{block.id}.tmp"):
        path.symlink_to(treasure)
    asked: list[Any] = []

    def ask(actor: Any, method: str, *arguments: Any) -> Future[Report]:
        asked.append(arguments)
        answer: Future[Report] = Future()
        answer.set_result(Report(checkpoints={key: b"state"}, death="ended", log=b"printed"))
        return answer

    request = RunBlock(block, block.cells, {}, None, states, False, None, 0, "log")
    member = SimpleNamespace(actor=None, description=SimpleNamespace(folder=Path("there")))
    remote = Remote(SimpleNamespace(ask=ask), member, lambda member: None, request, log)  # type: ignore[arg-type]
    assert asked[0][1] == {}, "a link is no state"
    assert not remote.alive()
    assert treasure.read_text() == "dear"
    assert (states / f"{key}.pt").read_bytes() == b"state"
    assert log.read_bytes() == b"printed"
    assert not any(path.is_symlink() for path in (log, *states.iterdir()))
