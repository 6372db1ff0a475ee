"""A process that dies before the n-th time it renames or removes something, for every n.

    python dying.py SCENE FOLDER

A scene prepares a folder of results, then does the work that dies. FOLDER/0, FOLDER/1, ... are left as death left
them; the last one is whole.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from bnpbench.results import compact
from tests.support.parts import block, written

BEFORE, DURING = 1, 2  # what ``support.parts`` calls runs
CALLS = ("rename", "replace", "unlink", "remove", "rmdir")


def first_commit(out: Path) -> Callable[[], Any]:
    kept = written(out, [block(9)])
    kept.write_partial(block(1)[0][0]["key"], [{"epoch": 1}])
    return lambda: kept.write_block(*block(1, 2, run=DURING, steps=1))


def replacement(out: Path) -> Callable[[], Any]:
    kept = written(out, [block(9), block(1, 2, run=BEFORE, steps=2)])
    return lambda: kept.write_block(*block(1, 2, run=DURING, epochs=3))  # without steps


def replacement_of_merged(out: Path) -> Callable[[], Any]:
    kept = written(out, [block(9), block(1, 2, run=BEFORE, steps=2)])
    compact(out)
    return lambda: kept.write_block(*block(1, 2, run=DURING, steps=1))


def compaction(out: Path) -> Callable[[], Any]:
    written(out, [block(9), block(1, 2, run=DURING, steps=2)])
    return lambda: compact(out)


def compaction_of_more(out: Path) -> Callable[[], Any]:
    kept = written(out, [block(9), block(1, 2, run=BEFORE, steps=2)])
    compact(out)
    kept.write_block(*block(1, 2, run=DURING, steps=1))
    return lambda: compact(out)


SCENES = {scene.__name__: scene for scene in (first_commit, replacement, replacement_of_merged)}
COMPACTIONS = {scene.__name__: scene for scene in (compaction, compaction_of_more)}


def deaths(scene: str, folder: Path) -> list[Path]:
    """The folders that death left, in the order of its moments; the last is the one that lived."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, __file__, scene, str(folder)], env=environment, check=True)
    found = sorted(folder.iterdir(), key=lambda path: int(path.name))
    assert len(found) > 5
    return found


def litter(out: Path) -> list[str]:
    """What is there that only a run at work, or one that died, would have."""
    return sorted(
        str(path.relative_to(out))
        for path in out.rglob("*")
        if path.name.startswith(".")
        or path.suffix in (".tmp", ".lock", ".pt")
        or path.name.endswith(".partial.parquet")
        or path.name == "commit"
    )


def _die_before(count: int, work: Callable[[], Any]) -> NoReturn:
    left = count

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(9)
            return real(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, dying(getattr(os, name)))
    work()
    os._exit(0)


def main(scene: str, folder: str) -> None:
    count, code = 0, 9
    while code == 9:
        child = os.fork()  # before this process has done anything that starts a thread
        if not child:
            _die_before(count, (SCENES | COMPACTIONS)[scene](Path(folder) / str(count)))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        count += 1
    sys.exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
