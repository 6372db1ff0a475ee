"""A Ray cluster whose head and nodes are processes of this machine."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pytest

from tests.support.command import environment
from tests.support.processes import answer, below

RAY = Path(sys.executable).with_name("ray")
STOP_SECONDS = 60
TRIES = 3


class RayNodes:
    """A head without CPUs, and nodes with one CPU each as they are added. All end with the context.

    The variables that let a program in stand in this process's environment meanwhile.
    """

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv("RAY_AUTH_MODE", "token")
        self.patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        self.patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        self.patch.setenv("RAY_health_check_period_ms", "500")  # a dead node is missed after 3 s, not 15
        self.folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short: Ray makes sockets below it
        self.nodes: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        head = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", "--disable-usage-stats"]
        self.head = self._start(*head, f"--temp-dir={self.folder}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in [*self.nodes, self.head]:
            self.kill(process)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.patch.undo()

    def add(self, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """A node that is ready; one at a time, because Ray's nodes of one machine share a folder."""
        self.nodes.append(self._start(f"--address={self.address}", "--num-cpus=1", env=env))
        return self.nodes[-1]

    def lose(self, node: subprocess.Popen[bytes]) -> None:
        """A node falls silent: its own processes die at once, and nobody ends its workers."""
        self.nodes.remove(node)
        raylets = [p for p in psutil.Process(node.pid).children() if p.name() == "raylet"]
        assert len(raylets) == 1
        node.kill()
        raylets[0].kill()
        node.wait()

    def remove(self, node: subprocess.Popen[bytes]) -> None:
        """A node says good-bye."""
        self.nodes.remove(node)
        node.terminate()
        node.wait(STOP_SECONDS)

    def measuring(self) -> list[psutil.Process]:
        """The workers of all nodes, and what they started."""
        return [process for node in self.nodes for process in self.of(node)]

    def of(self, node: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """The workers of a node, and what they started."""
        raylets = [process for process in below(node.pid, generation=1) if answer(process.name, "") == "raylet"]
        started = [process for raylet in raylets for process in answer(raylet.children, [])]
        hosts = [process for process in started if "Host" in "".join(answer(process.cmdline, []))]
        return [*hosts, *(child for host in hosts for child in answer(partial(host.children, recursive=True), []))]

    def is_busy(self, node: subprocess.Popen[bytes]) -> bool:
        """Whether a block is being measured there: the forkserver has a child, which looks like it."""
        return sum("forkserver" in "".join(answer(process.cmdline, [])) for process in self.of(node)) > 1

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        for member in family:
            if member.is_running():
                member.kill()
        psutil.wait_procs(family, timeout=10)

    def _start(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a head or a node; where Ray itself gives up, as it does now and then on a busy machine, once more."""
        command = [RAY, "start", *arguments, "--object-store-memory=80000000", "--block"]
        for _ in range(TRIES):
            log = self.folder / f"start-{time.monotonic_ns()}.log"
            with log.open("wb") as file:
                process = subprocess.Popen(command, stdout=file, stderr=file, env=environment(env))
            while process.poll() is None:
                if "Ray runtime started" in log.read_text():
                    return process
                time.sleep(0.1)
        raise RuntimeError(f"{log.read_text()}\n{self._raylets()}")

    def _raylets(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in self.folder.glob("session_*/logs/raylet*.out"))
