"""Comparisons from the command line: codes, words, the threshold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bnpbench.cli.compare import max_slowdown
from bnpbench.errors import BnpbenchError
from tests.support.command import called
from tests.support.made_results import Made, epochs


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    made = Made(tmp_path / "measured" / "results")
    for method in ("vanilla", "bnp"):
        for seed in (1, 2):
            made.cell(method, 16, seed, epochs([1.0] * 6, [0.5] * 6), flops_model=1000)
    made.read()
    return tmp_path / "measured"


def test_a_comparison_ends_as_what_it_found(measured: Path, tmp_path: Path) -> None:
    same = called("compare", "results", "results", cwd=measured)
    assert (same.returncode, same.stderr) == (0, "")
    assert "Comparison: " in same.stdout
    shutil.copytree(measured / "results", tmp_path / "dearer")
    for path in tmp_path.glob("dearer/*/*/cells/*.parquet"):
        table = pq.read_table(path)
        place = table.schema.get_field_index("flops_model")
        dearer = pa.array([count + 1 for count in table["flops_model"].to_pylist()], table.schema.field(place).type)
        pq.write_table(table.set_column(place, table.schema.field(place), dearer), path)
    changed = called("compare", measured / "results", "dearer", cwd=tmp_path)
    assert changed.returncode == 1, changed.stderr
    assert "flops_model" in changed.stdout
    other = shutil.copytree(measured / "results", tmp_path / "other")
    for path in other.glob("*/*/environment.json"):
        environment = json.loads(path.read_text())
        environment["hardware"]["cpu"], environment["id"] = "Another CPU", "0123456789ab"
        path.write_text(json.dumps(environment))
        path.parent.rename(path.parent.with_name("0123456789ab"))
    refused = called("compare", measured / "results", "other", cwd=tmp_path)
    assert refused.returncode == 4
    assert "Another CPU" in refused.stderr
    across = ["compare", measured / "results", "other", "--across-machines"]
    assert called(*across, cwd=tmp_path).returncode == 0
    overlooked = called(*across, "--fail-on-undecided", cwd=tmp_path)
    assert overlooked.returncode == 4
    assert "Comparison: no regression found; 1 of 1 time could not be judged" in overlooked.stdout
    (tmp_path / "empty").mkdir()
    assert called("compare", measured / "results", "empty", cwd=tmp_path).returncode == 4
    baseless = called("compare", "empty", measured / "results", cwd=tmp_path)
    assert baseless.returncode == 4
    assert "empty" in baseless.stderr


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("5", "write 5% or 500%"),
        ("1", "write 1% or 100%"),
        ("1.5", "write 1.5% or 150%"),
        ("0", "share above 0"),
        ("-5%", "share above 0"),
        ("five", "share above 0"),
        ("1000%", "share above 0"),
        ("nan", "share above 0"),
        ("0.05", None),
        ("5%", None),
        ("500%", None),
    ],
)
def test_a_slowdown_of_more_than_everything_needs_its_unit(asked: str, words: str | None) -> None:
    if words is None:
        assert max_slowdown(asked) == (float(asked.removesuffix("%")) / 100 if "%" in asked else float(asked))
    else:
        with pytest.raises(BnpbenchError, match=rf"--max-slowdown {asked}: .*{words}"):
            max_slowdown(asked)


@pytest.mark.parametrize("option", ["--base", "--new"])
def test_a_missing_shard_of_a_comparison_is_named(option: str, measured: Path) -> None:
    missing = called("compare", "results", "results", option, "nowhere", cwd=measured)
    assert missing.returncode == 2
    assert missing.stdout == ""
    assert "nowhere" in missing.stderr
