"""One block in one process: a cell that goes on from its checkpoint, or from the start where that is no use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bnpbench import load_suite
from bnpbench.bnp import fused
from bnpbench.execution.block import BlockRun
from bnpbench.execution.messages import Epoch, Finished, Note, Preflight, RunBlock
from bnpbench.execution.preflight import preflight
from bnpbench.measure.step_costs import Columns, Costs
from bnpbench.suite.cells import Block
from bnpbench.suite.document import Measure
from bnpbench.training import state
from tests.support.command import SUITE, suite
from tests.support.training import cell

Content = dict[str, Any]
ALONE = SUITE.replace('method = ["vanilla", "bnp"]\nseed = [1, 2]\n', 'method = ["vanilla"]\n')
PROBE = '[probe]\nlayer = "hidden2"\nevery = 5\nneuron = {}\n'


def ran(folder: Path, method: Any = "bn") -> list[Any]:
    """What the run of a cell says; its last checkpoint but one stays in the folder."""
    one = cell(method=method, epochs=4, optimizer={"kind": "sgd", "lr": 0.1, "momentum": 0.9})
    costs = {one.key: Costs(Columns())}
    said: list[Any] = []
    request = RunBlock(Block((one,), Measure()), (one,), costs, None, folder, fresh=False, cores=None, gpu=0, log="log")
    BlockRun(request, said.append, checkpoint_seconds=0.0).run()
    return said


def epochs(said: list[Any]) -> list[dict[str, Any]]:
    rows = [message.row for message in said if isinstance(message, Epoch)]
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


def finished(said: list[Any]) -> dict[str, Any]:
    (message,) = (message for message in said if isinstance(message, Finished))
    return message.row


def test_a_cell_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    undisturbed = ran(tmp_path)
    (path,) = tmp_path.iterdir()
    content = state.load(path)
    assert content is not None
    assert len(content["rows"]) == 3
    again = ran(tmp_path)
    assert epochs(again) == epochs(undisturbed)
    before, after = ([one for one in told if isinstance(one, Epoch)] for told in (undisturbed, again))
    assert after[:3] == [replace(one, earlier=True) for one in before[:3]]  # with their times
    assert finished(again)["message"] is None


def test_a_cell_tells_the_form_of_bnp_that_ran_and_why_not_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(layout: fused.Layout, places: object) -> None:
        raise RuntimeError("no compiler")

    method = {"kind": "bnp", "form": "fused"}
    monkeypatch.setattr(fused, "compiled", lambda layout, places: layout.step)
    row = finished(ran(tmp_path / "fused", method))
    assert (row["status"], row["bnp_form"], row["message"]) == ("ok", "fused", None)
    monkeypatch.setattr(fused, "compiled", fails)
    with pytest.warns(UserWarning, match="plain form"):
        row = finished(ran(tmp_path / "plain", method))
    assert (row["status"], row["bnp_form"]) == ("ok", "plain")
    assert "no compiler" in row["message"]


@pytest.mark.parametrize(("rate", "status", "kept"), [(0.1, "ok", 8 * 227 + 4 * 6), (1e30, "diverged", None)])
def test_a_cell_tells_what_its_optimizer_keeps_in_the_end(rate: float, status: str, kept: int | None) -> None:
    """Of one that diverged it may be half a state: an optimizer that met no numbers drops its own."""
    one, said = cell(optimizer={"kind": "adam", "lr": rate}), list[Any]()
    costs = {one.key: Costs(Columns())}
    request = RunBlock(Block((one,), Measure()), (one,), costs, None, None, fresh=True, cores=None, gpu=0, log="log")
    BlockRun(request, said.append).run()
    assert (finished(said)["status"], finished(said)["optimizer_state_bytes"]) == (status, kept)


@pytest.mark.regression
@pytest.mark.parametrize(
    ("baseline", "bases"), [(None, ["vanilla"]), ("ln", ["vanilla", "ln"]), ("gn", ["vanilla", "gn"])]
)
def test_a_block_goes_on_until_the_ratios_that_the_report_shows_are_known(
    baseline: str | None, bases: list[str]
) -> None:
    """It did not look at those to a baseline that the suite names."""
    cells = tuple(cell(method=method) for method in ("vanilla", "ln", {"kind": "gn", "groups": 1}))
    costs = {one.key: Costs(Columns()) for one in cells}
    block = Block(cells, Measure(interleave=("method",), interval="2%", max_epochs=9), baseline=baseline)
    run = BlockRun(RunBlock(block, cells, costs, None, None, True, None, 0, "log"), list[Any]().append)
    drifts = {"vanilla": 0.0, "ln": 0.03, "gn": 0.1}
    for member in run.members:
        drift = drifts[member.cell.settings.method.kind]
        member.rows = [{"train_seconds": 1.0 + drift * epoch} for epoch in range(6)]
    found = run.half_widths(run.members)
    assert len(found) == 2 * len(bases)
    assert found[0] < found[1]  # of layers, then of groups, to vanilla


@pytest.mark.parametrize("target", ["treasure", "absent"])
def test_a_state_is_written_through_no_link(target: str, tmp_path: Path) -> None:
    """A folder of results may be a stranger's, and so may be the links in it."""
    treasure, states = tmp_path / "treasure", tmp_path / "states"
    treasure.write_text("dear")
    undisturbed = ran(states)
    (path,) = states.iterdir()
    content = state.load(path)
    assert content is not None
    for link in (path, states / f".{content['block']}.tmp"):
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / target)
    assert_afresh(ran(states), undisturbed, path.name)
    assert treasure.read_text() == "dear"
    assert not (tmp_path / "absent").exists()
    assert [(file.name, file.is_symlink()) for file in states.iterdir()] == [(path.name, False)]


def without_state(content: Content) -> None:
    del content["state"]


def of_another_shape(content: Content) -> None:
    content["state"]["model"] = {name: value[:1] for name, value in content["state"]["model"].items() if value.dim()}


def half_an_optimizer(content: Content) -> None:
    content["state"]["optimizer"] = {0: {"momentum_buffer": "none"}}


def another_weight(content: Content) -> None:
    content["state"]["model"] = {name: value.double() for name, value in content["state"]["model"].items()}


def rows_that_are_none(content: Content) -> None:
    content["rows"] = [1, 2, 3]


def rows_without_numbers(content: Content) -> None:
    content["rows"] = [{"epoch": row["epoch"], "key": row["key"]} for row in content["rows"]]


def rows_of_another_cell(content: Content) -> None:
    content["rows"] = [{**row, "key": "0123456789ab"} for row in content["rows"]]


def rows_from_the_second_on(content: Content) -> None:
    content["rows"] = content["rows"][1:]


def text_for_a_number(content: Content) -> None:
    content["rows"] = [{**row, "learning_rate": "fast"} for row in content["rows"]]


def unknown_column(content: Content) -> None:
    content["rows"] = [{**row, "planted": 1.0} for row in content["rows"]]


def number_beyond_all(content: Content) -> None:
    content["rows"] = [{**row, "examples": 2**70} for row in content["rows"]]


def number_for_a_block(content: Content) -> None:
    content["rows"] = [{**row, "block": 7} for row in content["rows"]]


def probe_of_something_else(content: Content) -> None:
    content["probed"] = [{"epoch": 1, "step": 1, "planted": 1.0}]


def probe_of_text(content: Content) -> None:
    content["probed"] = [{"epoch": 1, "step": "first"}]


def no_random_state(content: Content) -> None:
    content["random"]["cpu"] = content["random"]["cpu"][:5]


MALFORMED = (
    without_state,
    of_another_shape,
    half_an_optimizer,
    another_weight,
    rows_that_are_none,
    rows_without_numbers,
    rows_of_another_cell,
    rows_from_the_second_on,
    text_for_a_number,
    unknown_column,
    number_beyond_all,
    number_for_a_block,
    probe_of_something_else,
    probe_of_text,
    no_random_state,
)


@pytest.mark.parametrize("spoil", MALFORMED)
def test_a_malformed_checkpoint_starts_the_cell_afresh_and_says_so(
    spoil: Callable[[Content], None], tmp_path: Path
) -> None:
    """It failed its cell at every rerun, or ended the whole run."""
    undisturbed = ran(tmp_path)
    (path,) = tmp_path.iterdir()
    content = state.load(path)
    assert content is not None
    spoil(content)
    state.save(content, path, tmp_path / "x.tmp")
    assert_afresh(ran(tmp_path), undisturbed, path.name)


@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_a_damaged_checkpoint_starts_the_cell_afresh_and_says_so(damage: str, tmp_path: Path) -> None:
    undisturbed = ran(tmp_path)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content if damage == "flip" else content[:-10])
    assert_afresh(ran(tmp_path), undisturbed, path.name)


def assert_afresh(again: list[Any], undisturbed: list[Any], name: str) -> None:
    (note,) = (message.text for message in again if isinstance(message, Note))
    assert f"its checkpoint {name} cannot be used (" in note
    assert note.endswith("): started afresh")
    assert note.endswith(finished(again)["message"])
    assert finished(again)["status"] == "ok"
    assert epochs(again) == epochs(undisturbed)


@pytest.mark.regression
@pytest.mark.parametrize(
    ("told", "recorded"),
    [([False, True, False], True), ([False, False, False], False), ([None, None, None], None)],
)
def test_a_device_that_was_throttled_after_any_epoch(told: list[bool | None], recorded: bool | None) -> None:
    """It was asked once all was over and the device stood idle."""
    answers, one, said = iter(told), cell(epochs=3), list[Any]()
    gauges: Any = SimpleNamespace(
        throttled=lambda device: next(answers),
        clock_mhz=lambda device: None,
        peak_memory_bytes=lambda: 1,
        seconds_of_others=lambda: None,
    )
    costs = {one.key: Costs(Columns())}
    request = RunBlock(Block((one,), Measure()), (one,), costs, None, None, fresh=True, cores=None, gpu=0, log="log")
    BlockRun(request, said.append, gauges=gauges).run()
    assert finished(said)["throttled"] is recorded


@pytest.mark.regression
def test_a_checkpoint_goes_with_its_block(tmp_path: Path) -> None:
    """With another ``[probe]`` a cell went on from it, and numbers of one neuron stood beside those of another."""
    blocks = []
    for neuron in (0, 0, 1):
        loaded = load_suite(suite(tmp_path, ALONE + PROBE.format(neuron)))
        (one,) = loaded.blocks(loaded.cells(device="cpu", threads=1))
        costs = preflight(Preflight(one.cells, None, offline=True), print)
        said: list[Any] = []
        request = RunBlock(one, one.cells, costs, None, tmp_path / "checkpoints", False, None, 0, "log")
        BlockRun(request, said.append, checkpoint_seconds=0.0).run()
        blocks.append([message.row["block"] for message in said if isinstance(message, Epoch)])
        assert set(blocks[-1]) == {one.id}
    assert [len(of) for of in blocks] == [2, 2, 2]
