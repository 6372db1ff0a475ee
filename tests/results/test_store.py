"""The store: parts are whole or absent, whatever dies or fills up in between."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bnpbench.errors import ResultsError
from bnpbench.records.documents import Environment, SuiteRecord
from bnpbench.results import Store, compact, part, read_results
from tests.support import dying
from tests.support.parts import ENVIRONMENT, KEY, block, canonicals, hashed, identity_of, store, three, written

HERE = Path(__file__).parent


def temporary_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".tmp")]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    cells, epochs, steps = block(1, 2, steps=3)
    key = cells[0]["key"]
    epochs[key][0] |= {"train_loss": math.nan, "test_accuracy": 0.5, "outlier": True, "turn": 4}
    written(tmp_path, [(cells, epochs, steps)])
    results = read_results(tmp_path)
    assert results.damaged == []
    row = results.epochs[results.epochs["key"] == key].iloc[0]
    assert math.isnan(row["train_loss"])
    assert row["test_accuracy"] == 0.5
    assert row["outlier"] is True
    nulls = results.epochs[["train_loss", "test_accuracy"]].isna()
    whole = results.epochs["train_loss"].array.__arrow_array__()  # pandas' isna takes NaN for null; Arrow does not
    assert whole.null_count == 3
    assert nulls["test_accuracy"].sum() == 3
    assert set(results.epochs["block"]) == {identity_of((cells, epochs, steps))}
    assert len(results.steps) == 6
    assert results.environments == {"0123456789ab": ENVIRONMENT}
    for name in ("cells", "epochs", "steps"):
        assert (
            pq.read_schema(next((tmp_path / "made" / "0123456789ab" / name).iterdir())).metadata[b"schema_version"]
            == b"1"
        )


def test_a_finished_block_is_known_again(tmp_path: Path) -> None:
    made = block(1, 2)
    kept = written(tmp_path, [made])
    assert kept.finished(identity_of(made), canonicals(made))
    assert not kept.finished("another", canonicals(made))
    assert not kept.finished(identity_of(made), {**canonicals(made), **dict([hashed(3)])})
    key = hashed(1)[0]
    assert not kept.finished(identity_of(made), {key: '{"number": 1.0}'})


@pytest.mark.parametrize(
    ("status", "finished"),
    [("ok", True), ("diverged", True), ("not-applicable", True), ("oom", False), ("timeout", False), ("error", False)],
)
def test_some_statuses_are_measured_again(tmp_path: Path, status: str, finished: bool) -> None:
    made = block(1, status=status)
    assert written(tmp_path, [made]).finished(identity_of(made), canonicals(made)) == finished


@pytest.mark.parametrize("kind", ["cells", "epochs", "steps"])
@pytest.mark.parametrize("damage", ["remove", "truncate", "flip"])
def test_a_damaged_part_is_measured_again(tmp_path: Path, kind: str, damage: str) -> None:
    made = block(1, 2, steps=2)
    kept = written(tmp_path, [made])
    path = kept.folder / kind / f"{hashed(1)[0]}.parquet"
    whole = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(whole[:-20] if damage == "truncate" else whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    assert not kept.finished(identity_of(made), canonicals(made))
    assert hashed(1)[0] not in set(read_results(tmp_path).cells["key"])
    kept.write_block(*made)
    assert kept.finished(identity_of(made), canonicals(made))


def test_rows_of_an_earlier_measurement_do_not_stay(tmp_path: Path) -> None:
    kept = written(tmp_path, [block(1, epochs=3, steps=2)])
    cells, _, _ = block(1, run=1, status="not-applicable")
    kept.write_block(cells)
    results = read_results(tmp_path)
    assert (len(results.cells), len(results.epochs), len(results.steps)) == (1, 0, 0)


def test_epochs_so_far_stand_apart_until_the_block_is_written(tmp_path: Path) -> None:
    kept = store(tmp_path)
    made = block(1)
    key = hashed(1)[0]
    kept.write_partial(key, made[1][key][:1])
    kept.write_partial(key, made[1][key])
    assert pq.read_table(kept.folder / "epochs" / f"{key}.partial.parquet").num_rows == 2
    results = read_results(tmp_path)
    assert len(results.epochs) == 0
    assert "unfinished" in results.damaged[0][1]
    kept.write_block(*made)
    assert read_results(tmp_path).damaged == []


def test_blocks_that_share_a_cell_are_written_one_after_the_other(tmp_path: Path) -> None:
    def write(kept: Store, *numbers: int) -> None:
        for run in range(40):
            kept.write_block(*block(*numbers, run=run % 20))

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(write, store(tmp_path), *numbers) for numbers in ((1, 2), (1,), (2,))]:
            done.result()
    assert temporary_files(tmp_path) == []
    assert list((tmp_path / "made" / ENVIRONMENT.id / "locks").iterdir()) == []


def test_unknown_columns_and_strays_are_errors_of_the_caller(tmp_path: Path) -> None:
    cells, epochs, _ = block(1)
    with pytest.raises(ValueError, match="no column colour"):
        store(tmp_path).write_block([{**cells[0], "colour": 1}], epochs)
    with pytest.raises(ValueError, match="that the block lacks"):
        store(tmp_path).write_block(cells, {"another": []})
    assert temporary_files(tmp_path) == []


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", ".", "..", ".hidden", "a/../../b", "a\x00b", "ü|x"])
def test_no_name_leaves_the_folder(tmp_path: Path, name: str) -> None:
    out = tmp_path / "deep" / "out"
    made = Store(out, name, ENVIRONMENT).create()
    made.write_suite(SuiteRecord(name=name))
    made.write_block(*block(1))
    assert made.suite_folder.parent == out
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"out"}
    assert set(read_results(out).cells["suite"]) == {name}


@pytest.mark.parametrize("name", ["../x", "a/b", "", "x" * 65, "a.b"])
def test_no_key_block_or_environment_leaves_the_folder(tmp_path: Path, name: str) -> None:
    cells, _, _ = block(1)
    with pytest.raises(ResultsError, match="cannot name a file"):
        store(tmp_path).write_block([{**cells[0], "key": name}])
    with pytest.raises(ResultsError), store(tmp_path).lock(name):
        pass
    with pytest.raises(ResultsError):
        store(tmp_path).log_path(name)
    with pytest.raises(ResultsError):
        Store(tmp_path, "suite", Environment(id=name))


@pytest.mark.parametrize("obstacle", ["file", "name", "empty", "surrogate"])
def test_an_output_that_cannot_be_written_is_one_clear_error(tmp_path: Path, obstacle: str) -> None:
    place = tmp_path / "occupied"
    place.write_text("")
    out, suite = {
        "file": (place, "s"),
        "name": (tmp_path, "x" * 300),
        "empty": (tmp_path, ""),
        "surrogate": (tmp_path, "\udcff"),
    }[obstacle]
    with pytest.raises(ResultsError) as error:
        Store(out, suite, ENVIRONMENT).create()
    assert "\n" not in str(error.value)
    if obstacle == "file":
        assert str(place) in str(error.value)
        assert "--out" in str(error.value)


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = written(tmp_path, [block(1, 2, run=1)])
    real, calls = part.sync, [0]

    def full(path: Path) -> None:
        calls[0] += 1
        if calls[0] == 4:
            raise OSError(28, "No space left on device", str(path))
        real(path)

    monkeypatch.setattr(part, "sync", full)
    with pytest.raises(ResultsError, match="No space left on device"):
        kept.write_block(*block(1, 2, run=2))
    monkeypatch.setattr(part, "sync", real)
    assert set(read_results(tmp_path).cells["label"]) == {"run 1"}
    assert temporary_files(tmp_path) == []


@pytest.mark.parametrize("scene", dying.SCENES)
def test_whenever_a_commit_dies_the_block_is_the_old_one_or_the_new_one(scene: str, tmp_path: Path) -> None:
    """At every rename and every removal: for a reader who comes then, and for the run that comes next."""
    made = block(1, 2)
    seen = []
    for out in dying.deaths(scene, tmp_path):
        results = read_results(out)
        mine = results.cells[results.cells["block"] == identity_of(made)]
        label = " ".join(sorted(set(mine["label"])))
        seen.append(label)
        if label:
            assert results.damaged == []
            assert len(mine) == 2
            seconds = results.epochs[results.epochs["block"] == identity_of(made)]["train_seconds"]
            assert set(seconds) == {float(label.split()[1])}
            counts = {"run 1": (4, 4), "run 2": (6, 0) if scene == "replacement" else (4, 2)}[label]
            assert (len(seconds), len(results.steps)) == counts
        kept = store(out)
        assert kept.finished(identity_of(made), canonicals(made)) == bool(label)
        again = read_results(out)
        assert again.damaged == [] or not label
        assert set(again.cells["label"]) == {"run 0", label} - {""}
        assert dying.litter(out) == ([] if label else dying.litter(out))
        kept.write_block(*block(1, 2, run=4, steps=1))
        last = read_results(out)
        assert set(last.cells["label"]) == {"run 0", "run 4"}
        assert (last.damaged, dying.litter(out)) == ([], [])
    assert seen == sorted(seen)
    assert set(seen) == ({"", "run 2"} if scene == "first_commit" else {"run 1", "run 2"})


HOLDING = """
import sys, time
from pathlib import Path
from tests.support.parts import store
with store(Path(sys.argv[1])).lock("abc") as held:
    print("held" if held else "free", flush=True)
    time.sleep(60)
"""


def test_two_processes_never_hold_one_block(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        kept = store(tmp_path)
        with kept.lock("abc", wait=False) as held:
            assert not held
        with kept.lock("abd", wait=False) as held:
            assert held
        holder.kill()  # the kernel frees the lock of a dead process
        holder.wait()
        with kept.lock("abc") as held:
            assert held
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert list((kept.folder / "locks").iterdir()) == []


COUNTING = """
import sys
from pathlib import Path
from tests.support.parts import block, canonicals, identity_of, store
kept, measured = store(Path(sys.argv[1])), 0
for number in range(40):
    made = block(number, run=int(sys.argv[2]))
    with kept.lock(identity_of(made)):
        if not kept.finished(identity_of(made), canonicals(made)):
            kept.write_block(*made)
            measured += 1
print(measured)
"""


def test_two_runs_at_once_measure_every_cell_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", COUNTING, str(tmp_path), str(run)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for run in (1, 2)
    ]
    counts = [int(run.communicate(timeout=60)[0]) for run in runs]
    assert sum(counts) == 40
    results = read_results(tmp_path)
    assert (len(results.cells), len(results.epochs), results.damaged) == (40, 80, [])
    assert list((tmp_path / "made" / "0123456789ab" / "locks").iterdir()) == []


def test_the_suite_document_is_replaced_whole(tmp_path: Path) -> None:
    kept = store(tmp_path)
    for version in (1, 2):
        document: dict[str, Any] = {"name": "made", "description": f"ü {version}", "cells": []}
        kept.write_suite(SuiteRecord.model_validate(document))
        assert json.loads((kept.suite_folder / "suite.json").read_text(encoding="utf-8")) == document
    assert sorted(path.name for path in kept.suite_folder.iterdir()) == ["0123456789ab", "suite.json"]


@pytest.mark.regression
def test_a_newer_suite_document_stays(tmp_path: Path) -> None:
    """It was replaced without a word where no part beside it was a newer one's."""
    kept = store(tmp_path)
    kept.write_suite(SuiteRecord(schema_version=2, name="made"))
    before = (kept.suite_folder / "suite.json").read_bytes()
    told = "schema_version 2: a newer bnpbench wrote it, this one writes 1. Nothing was written: install that bnpbench"
    with pytest.raises(ResultsError, match=rf"suite\.json: {told}"):
        kept.write_suite(SuiteRecord(schema_version=1, name="made"))
    assert (kept.suite_folder / "suite.json").read_bytes() == before
    kept.write_suite(SuiteRecord(schema_version=2, name="again"))
    for text in ("[]", '{"schema_version": "9"}', '{"schema_version": 1}', "x"):  # nobody's
        (kept.suite_folder / "suite.json").write_text(text)
        kept.write_suite(SuiteRecord(schema_version=1, name="made"))


def of_a_newer_schema(path: Path) -> bytes:
    """The part as a bnpbench to come may write it: another version, another column."""
    file = pq.ParquetFile(path)
    table = file.read().append_column("new", pa.nulls(file.metadata.num_rows, pa.string()))
    metadata = {k.decode(): v.decode() for k, v in file.metadata.metadata.items() if k != b"ARROW:schema"}
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({**metadata, "schema_version": "2"})
    return path.read_bytes()


@pytest.mark.parametrize("place", ["cells/{key}.parquet", "epochs/{key}.parquet", "cells.parquet"])
def test_what_a_newer_bnpbench_wrote_is_never_written_over(place: str, tmp_path: Path) -> None:
    made = block(1, 2)
    kept = written(tmp_path, [made])
    if place == "cells.parquet":
        compact(tmp_path)
    path = kept.folder / place.format(key=hashed(2)[0])
    newer = of_a_newer_schema(path)
    told = r"schema_version 2: a newer bnpbench wrote it, this one reads 1"
    assert told in " ".join(reason for _, reason in read_results(tmp_path).damaged)
    with pytest.raises(ResultsError, match=rf"{path.name}: {told}\. Nothing was written: install that bnpbench, or"):
        kept.refuse_newer([hashed(1)[0], hashed(2)[0]])
    with pytest.raises(ResultsError, match=told):
        kept.write_block(*made)
    assert path.read_bytes() == newer
    if place != "cells.parquet":
        compact(tmp_path)
    assert path.read_bytes() == newer
    assert dying.litter(tmp_path) == []


def test_what_killed_runs_left_goes_at_the_next_start(tmp_path: Path) -> None:
    kept = written(tmp_path, [block(1), block(3, status="interrupted")])
    (kept.folder / "checkpoints").mkdir()
    left = [
        kept.folder / ".commit.tmp" / "cells" / "x.parquet",
        kept.folder / ".cells.parquet.tmp",
        kept.folder / "epochs" / ".x.partial.parquet.tmp",
        kept.folder / ".environment.json.tmp",
        kept.checkpoint(hashed(1)[0]),  # of a cell that is finished
        kept.folder / "epochs" / f"{hashed(1)[0]}.partial.parquet",
        kept.checkpoint_temporary("dead"),
        kept.folder / "locks" / "dead.lock",
        kept.folder / "locks" / "writing.lock",
    ]
    wanted = [kept.checkpoint(hashed(3)[0]), kept.checkpoint_temporary("alive")]
    for path in (*left, *wanted):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    with kept.lock("alive"):  # of another run
        kept.create()
    assert [path for path in left if path.exists()] == []
    assert [path for path in wanted if not path.exists()] == []


def moved(folder: Path, elsewhere: Path) -> None:
    """Put a link where a folder was."""
    folder.mkdir(exist_ok=True)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)


def test_no_path_or_host_stands_in_the_files(tmp_path: Path) -> None:
    folder = three(tmp_path).parent.parent
    for path in folder.rglob("*"):
        if path.is_file():
            assert str(tmp_path).encode() not in path.read_bytes()
            assert os.uname().nodename.encode() not in path.read_bytes() or len(os.uname().nodename) < 5
    assert json.loads((folder / "environment.json").read_text())["id"] == "0123456789ab"


# --- links: nothing is written, removed or read through one ---------------------------------------------------------

FOLDERS = [".", "..", "cells", "epochs", "steps", "logs", "locks", "checkpoints"]  # of an environment


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("name", FOLDERS)
def test_nothing_is_written_into_a_folder_that_is_a_link(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept = written(out, [block(1, 2, steps=1), block(3)])
    folder = Path(os.path.normpath(kept.folder / name))
    moved(folder, tmp_path / "elsewhere")
    before = contents(tmp_path / "elsewhere")
    for attempt in (
        lambda: Store(out, "made", ENVIRONMENT).create(),
        lambda: kept.write_block(*block(1, 2, run=5)),
        lambda: kept.write_partial(KEY, [{"epoch": 1}]),
        lambda: compact(out),
    ):
        with pytest.raises(ResultsError, match="symbolic link"):
            attempt()
    if name == "..":
        with pytest.raises(ResultsError, match="symbolic link"):
            kept.write_suite(SuiteRecord(name="made"))
    assert contents(tmp_path / "elsewhere") == before


def test_links_under_temporary_names_are_removed_and_not_written_through(tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept = written(out, [block(1, 2, steps=1)])
    treasure = tmp_path / "treasure"
    treasure.write_text("dear")
    names = [f"{kind}/.{KEY}.parquet.tmp" for kind in ("cells", "epochs", "steps")]
    names += [f".{name}.tmp" for name in ("cells.parquet", "epochs.parquet", "steps.parquet")]
    names += [f"epochs/.{KEY}.partial.parquet.tmp", f".environment.json.{os.getpid()}.tmp", ".environment.json.tmp"]
    names += [f"../.suite.json.{os.getpid()}.tmp", "../.suite.json.tmp"]
    for target in (treasure, tmp_path / "new"):
        for name in names:
            (kept.folder / name).unlink(missing_ok=True)
            (kept.folder / name).symlink_to(target)
        kept.write_partial(KEY, [{"epoch": 1}])
        kept.write_block(*block(1, 2, run=3, steps=1))
        Store(out, "made", ENVIRONMENT).create().write_suite(SuiteRecord(name="made"))
        compact(out)
        assert treasure.read_text() == "dear"
        assert not (tmp_path / "new").exists()
    assert len(read_results(out).cells) == 2


def test_links_in_place_of_files_are_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    kept = written(out, [block(1)])
    treasure = tmp_path / "treasure"
    treasure.write_text("dear")
    for name in (f"cells/{KEY}.parquet", f"epochs/{KEY}.parquet", "environment.json"):
        (kept.folder / name).unlink()
        (kept.folder / name).symlink_to(treasure)
    store(out).write_block(*block(1, run=1))
    assert treasure.read_text() == "dear"
    assert not (kept.folder / "environment.json").is_symlink()
    assert len(read_results(out).cells) == 1


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    kept = written(tmp_path / "out", [block(1)])
    treasure = tmp_path / "treasure"
    treasure.write_text("dear")
    (kept.folder / "locks" / "b1.lock").symlink_to(treasure)
    with pytest.raises(ResultsError, match=r"b1\.lock"), kept.lock("b1"):
        pass
    assert treasure.read_text() == "dear"
