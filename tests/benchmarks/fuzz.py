"""Bad input by the thousand: every failure must be an error that was meant.

    python tests/benchmarks/fuzz.py [--seconds 60] [TARGET…]          all targets, or some of them, so long each
    python tests/benchmarks/fuzz.py --atheris TARGET -max_total_time=600    guided by coverage (pip install atheris)

Targets: suites, parts, checkpoints, data, command-lines. Each runs in a process of its own, which is told apart from
its input's fault by its exit code; printed are the inputs tried, the slowest, and the memory that was used at most.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SLOWEST_SECONDS = 5.0
Target = Callable[[bytes], None]


def suites(folder: Path) -> tuple[Target, list[bytes]]:
    """The loader of suites: a suite, or a BnpbenchError."""
    from bnpbench.errors import BnpbenchError
    from bnpbench.suite import load_suite, shipped_suites

    path = folder / "fuzzed.toml"

    def target(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(BnpbenchError):
            load_suite(path).cells(device="cpu", threads=1)

    return target, [shipped.read_bytes() for shipped in shipped_suites().values()]


def parts(folder: Path) -> tuple[Target, list[bytes]]:
    """The reader of results: rows, or a named damaged part."""
    from bnpbench.errors import BnpbenchError
    from bnpbench.records.documents import Environment
    from bnpbench.results import Store, read_results

    store = Store(folder / "out", "fuzzed", Environment(id="0123456789ab", measurement=1)).create()
    key = "44136fa355b3"  # of "{}"
    cell = {"key": key, "block": "b", "settings": "{}", "status": "ok", "label": "x", "seed": 1}
    epochs = [{"epoch": epoch, "train_loss": 0.5, "train_seconds": 1.0} for epoch in range(1, 30)]
    store.write_block([cell], {key: epochs})
    part, table = store.folder / "cells" / f"{key}.parquet", store.folder / "epochs" / f"{key}.parquet"
    seeds = [part.read_bytes(), table.read_bytes()]
    whole = read_results(folder / "out")
    assert len(whole.epochs) == 29
    assert not whole.damaged

    def target(data: bytes) -> None:
        damaged = table if data[:1] == b"e" else part
        damaged.write_bytes(data[1:])
        with contextlib.suppress(BnpbenchError):
            read_results(folder / "out")
        part.write_bytes(seeds[0])
        table.write_bytes(seeds[1])

    return target, [b"c" + seeds[0], b"e" + seeds[1]]


def checkpoints(folder: Path) -> tuple[Target, list[bytes]]:
    """The loader of checkpoints: a dict, or DamagedState."""
    import torch

    from bnpbench.training import state

    path = folder / "fuzzed.pt"
    state.save({"key": "k", "state": {"model": {"w": torch.zeros(3)}}, "rows": [{"epoch": 1}]}, path, folder / "x.tmp")

    def target(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(state.DamagedState):
            assert isinstance(state.load(path), dict)

    return target, [path.read_bytes()]


def data(folder: Path) -> tuple[Target, list[bytes]]:
    """Images in folders: tensors, or a DataError that names the file."""
    from PIL import Image

    from bnpbench.errors import DataError
    from bnpbench.reading import imagefolder

    path = folder / "image.JPEG"
    seeds = []
    for mode in ("RGB", "L", "CMYK"):
        Image.effect_mandelbrot((40, 30), (-2, -2, 2, 2), 50).convert(mode).save(path, quality=90)
        seeds.append(path.read_bytes())

    def target(content: bytes) -> None:
        path.write_bytes(content)
        errors = []
        try:
            imagefolder.decode(str(path))
        except DataError as error:
            errors.append(str(error))
        assert all(str(path) in error for error in errors)

    return target, seeds


def command_lines(folder: Path) -> tuple[Target, list[bytes]]:
    """The command line, in a folder with a suite and some results; NUL parts words and ``=`` sets variables."""
    from bnpbench.cli import run

    os.chdir(folder)
    Path("mine.toml").write_text('[train]\nepochs = "x"\n')  # a run of it ends before it begins
    Path("results").mkdir()
    lines = [
        "run mine.toml --only method=bn --seeds 2 --jobs 3 --shard 1/2",
        "report results --format json --output out.json",
        "compare results results --max-slowdown 5% --across-machines",
        "check mine.toml --json-schema",
        "new fresh",
        "env --help",
        "BNPBENCH_DATA=x BNPBENCH_OFFLINE=2 COLUMNS=a NO_COLOR=1 report results --figures f",
        "data get nothing --data-dir none",
        "verify theorem-1 --trials 0 --help",
    ]

    def target(content: bytes) -> None:
        words = content.decode(errors="replace").split("\0")
        words = [word for word in words if word not in ("get", "env", "verify", "--show-completion")] or ["--help"]
        variables = dict(
            word.split("=", 1) for word in words if word.startswith(("BNPBENCH_", "COLUMNS", "NO_C")) and "=" in word
        )
        words = [word for word in words if word.split("=", 1)[0] not in variables]
        before = dict(os.environ)
        with contextlib.suppress(ValueError, UnicodeEncodeError):
            os.environ.update(variables)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                code = run(words)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
        os.environ.clear()
        os.environ.update(before)
        assert code in (0, 1, 2, 3, 4), (code, words, out.getvalue()[-500:])
        assert "Traceback" not in out.getvalue()

    return target, [line.replace(" ", "\0").encode() for line in lines]


TARGETS = {
    "suites": suites,
    "parts": parts,
    "checkpoints": checkpoints,
    "data": data,
    "command-lines": command_lines,
}


def mutated(seeds: list[bytes], draws: random.Random) -> bytes:
    """A seed with some bytes changed, dropped, doubled, moved, or taken from another seed."""
    data = bytearray(draws.choice(seeds))
    for _ in range(draws.choice([1, 1, 2, 4, 16])):
        place, length = draws.randrange(len(data) + 1), draws.choice([1, 1, 2, 4, 8, 64, 1024])
        match draws.randrange(6):
            case 0:
                data[place : place + length] = draws.randbytes(min(length, 8))
            case 1:
                del data[place : place + length]
            case 2:
                data[place:place] = data[place : place + length] * draws.choice([1, 2, 50])
            case 3:
                other = draws.choice(seeds)
                begin = draws.randrange(len(other))
                data[place:place] = other[begin : begin + length]
            case 4:
                data[place : place + 4] = draws.choice(
                    [b"\xff\xff\xff\x7f", b"\0\0\0\0", b"-1", b"1e999", b"nan", b"[[[["]
                )
            case 5:
                del data[place:]
    return bytes(data[: 1 << 20])


def work(name: str, seconds: float, seed: int) -> None:
    """Try inputs for so long; an input that fails ends the process, and stands in a file."""
    draws = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        target, seeds = TARGETS[name](Path(folder))
        for data in seeds:
            target(data)
        kept = Path(tempfile.gettempdir()) / f"fuzz-{name}.bin"
        floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count, slowest, end = 0, 0.0, time.monotonic() + seconds
        while time.monotonic() < end:
            kept.write_bytes(data := mutated(seeds, draws))
            begin = time.monotonic()
            target(data)
            slowest = max(slowest, time.monotonic() - begin)
            assert slowest < SLOWEST_SECONDS
            count += 1
        kept.unlink(missing_ok=True)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - floor) / 1024
        os.chdir("/")
    print(
        f"{name}: {count:,} inputs, 0 failures, the slowest {slowest:.2f} s, memory grew by {grown:.0f} MiB", flush=True
    )


def guided(name: str, options: list[str]) -> None:
    """The same, guided by the coverage of bnpbench's own code."""
    import atheris

    with atheris.instrument_imports(include=["bnpbench", "tomllib"]):
        folder = tempfile.mkdtemp()
        target, seeds = TARGETS[name](Path(folder))
    corpus = Path(folder) / "corpus"
    corpus.mkdir()
    for number, data in enumerate(seeds):
        (corpus / str(number)).write_bytes(data)
    atheris.Setup([sys.argv[0], "-timeout=5", "-rss_limit_mb=2048", *options, str(corpus)], target)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=list(TARGETS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", action="store_true")
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    asked, rest = parser.parse_known_args()
    if asked.atheris:
        guided(asked.targets[0], rest)
    if asked.in_this_process:
        work(asked.targets[0], asked.seconds, asked.seed)
        return 0
    failed = 0
    for name in asked.targets:
        command = [sys.executable, __file__, name, "--in-this-process", "--seconds", str(asked.seconds)]
        code = subprocess.run([*command, "--seed", str(asked.seed)], check=False).returncode
        if code:
            print(f"{name}: FAILED with {code}; the input is {tempfile.gettempdir()}/fuzz-{name}.bin")
        failed += code != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
