"""What it takes to reach a target, as points: their numbers, their intervals, the front, what is not drawn."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

import pytest

from bnpbench.report.data import views
from bnpbench.report.figures import CrossPanel, Figure, figures
from bnpbench.report.figures.pareto import front_of
from bnpbench.report.render.drawing import write_figures
from tests.support.made_results import Made, epochs

Make = Callable[..., Made]
MIB = 2**20


def pictures(made: Made) -> list[Figure]:
    return [figure for figure in figures(views(made.read())) if figure.kind == "pareto"]


def panels(figure: Figure) -> list[CrossPanel]:
    return [panel for panel in figure.panels if isinstance(panel, CrossPanel)]


def several(made: Made, sizes: tuple[int, ...] = (16,), **columns: int) -> Made:
    """Reaching 0.5: vanilla slowly by cheap steps, bnp fast by dear ones, bn dearer than bnp both ways."""
    made.document["targets"] = [0.5]
    for size in sizes:
        for method, cost, first in (("vanilla", 1.0, 5), ("bnp", 1.5, 2), ("bn", 2.0, 3)):
            for seed in (1, 2, 3):
                reach = first + (seed == 3)
                seconds = [cost * (1 + 0.02 * seed) + 0.001 * epoch for epoch in range(8)]
                shares = [0.6 if epoch >= reach else 0.1 for epoch in range(1, 9)]
                peak = {"peak_memory_bytes": int((100 + 10 * cost) * MIB) + seed, **columns}
                made.cell(method, size, seed, epochs(seconds, shares, steps=[10] * 8), **peak)
    return made


def test_its_points_are_steps_times_and_memory(make: Make) -> None:
    (figure,) = pictures(several(make(), graph_memory_bytes=MIB))
    steps, memory = panels(figure)
    assert [(panel.x.label, panel.y.label) for panel in (steps, memory)] == [
        ("steps to 0.5", "seconds a step"),
        ("peak memory, MiB", "seconds to 0.5"),
    ]
    assert [cross.method for cross in steps.crosses] == ["vanilla", "bnp", "bn"]
    for cross, cost, first in zip(steps.crosses, (1.0, 1.5, 2.0), (5, 2, 3), strict=True):
        assert cross.x == pytest.approx(mean([10 * first, 10 * first, 10 * (first + 1)]))
        assert cross.y == pytest.approx((cost * 1.04 + 0.0035) / 10, rel=1e-3)
        assert cross.x_interval is not None
        assert cross.y_interval is not None
        assert cross.x_interval[0] < cross.x < cross.x_interval[1]
        assert cross.y_interval[0] < cross.y < cross.y_interval[1]
    for cross, cost, first in zip(memory.crosses, (1.0, 1.5, 2.0), (5, 2, 3), strict=True):
        assert cross.x == pytest.approx(101 + 10 * cost, rel=1e-5)
        assert cross.y == pytest.approx(cost * mean([1.02 * first, 1.04 * first, 1.06 * (first + 1)]), rel=0.01)


def test_the_front_goes_through_what_none_is_better_than(make: Make) -> None:
    (figure,) = pictures(several(make()))
    steps = panels(figure)[0]
    by_method = {cross.method: (cross.x, cross.y) for cross in steps.crosses}
    assert steps.front == (by_method["bnp"], by_method["vanilla"])
    assert front_of([(1, 1), (1, 2), (2, 1), (3, 0.5), (0.5, 3)]) == ((0.5, 3), (1, 1), (3, 0.5))
    assert front_of([]) == ()


def test_axes_hold_all_points_and_are_logarithmic(make: Make) -> None:
    (figure,) = pictures(several(make()))
    assert "An interval that reaches the edge goes on beyond it." in figure.notes
    for panel in panels(figure):
        for axis, place in ((panel.x, "x"), (panel.y, "y")):
            assert axis.log
            assert axis.limits is not None
            assert all(axis.limits[0] < getattr(cross, place) < axis.limits[1] for cross in panel.crosses)


def test_seeds_that_do_not_reach_it_keep_a_method_off_the_front(make: Make) -> None:
    made = several(make())
    for seed, shares in ((1, [0.9]), (2, [0.1])):
        made.cell("ln", 16, seed, epochs([0.01], shares, steps=[1]), peak_memory_bytes=MIB)
    made.cell("gn", 16, 1, epochs([0.01], [0.1], steps=[1]), peak_memory_bytes=MIB)
    (figure,) = pictures(made)
    steps = panels(figure)[0]
    lucky = next(cross for cross in steps.crosses if cross.method == "ln")
    assert lucky.label == "1 of 2 seeds"
    assert (lucky.x, lucky.y) not in steps.front
    assert len(steps.front) == 2
    assert "Not shown: gn at N = 16 (0 of 1 seeds reached it)." in figure.notes


def test_where_no_memory_is_known_it_says_so(make: Make) -> None:
    made = several(make(), peak_memory_bytes=0)
    (figure,) = pictures(made)
    assert len(panels(figure)) == 1
    assert "Not shown over peak memory, MiB (no peak_memory_bytes): all." in figure.notes


def test_cells_that_share_a_process_are_placed_by_what_they_keep(make: Make) -> None:
    """Its peak is that of all of them, so that none of them had a place. Optimizers with matrices counted nothing."""
    made = several(make(), peak_memory_bytes=0, method_state_bytes=3 * MIB, optimizer_state_bytes=MIB)
    (figure,) = pictures(made)
    memory = panels(figure)[1]
    assert memory.x.label == "memory that optimizer and method keep, MiB"
    assert [(cross.x, cross.x_interval) for cross in memory.crosses] == [(4.0, (4.0, 4.0))] * 3
    assert not any("Open" in note for note in figure.notes)
    assert any(note.startswith("What is kept from step to step: the optimizer's state") for note in figure.notes)


def test_what_is_not_preconditioned_keeps_what_its_optimizer_keeps(make: Make) -> None:
    """Without its costs it is not known whether it is preconditioned. That nothing is kept is a number, too."""
    made = several(make(), peak_memory_bytes=0, optimizer_state_bytes=MIB, flops_method_executed=7)
    columns: dict[str, dict[str, int]] = {
        "gn": {"optimizer_state_bytes": MIB},
        "in": {"optimizer_state_bytes": 0, "flops_method_executed": 0},  # plain gradient descent
        "ln": {"method_state_bytes": MIB, "flops_method_executed": 7},  # before it was recorded
    }
    for method, told in columns.items():
        for seed in (1, 2):
            made.cell(method, 16, seed, epochs([1.0] * 3, [0.1, 0.6, 0.6], steps=[10] * 3), **told)
    (figure,) = pictures(made)
    memory = panels(figure)[1]
    assert [(cross.method, cross.x) for cross in memory.crosses] == [
        ("vanilla", 1.0), ("bnp", 1.0), ("bn", 1.0), ("in", 0.0),
    ]  # fmt: skip
    assert memory.crosses[-1].x_interval == (0.0, 0.0)
    assert memory.x.limits is not None
    assert memory.x.limits[0] < 0 < 1 < memory.x.limits[1]
    assert (memory.x.log, memory.y.log) == (False, True)
    assert memory.front[0][0] == 0.0
    (unknown, before) = (note for note in figure.notes if note.startswith("Not shown over memory"))
    assert "(no method_state_bytes" in unknown
    assert unknown.endswith(": gn at N = 16.")
    assert before.endswith("(no optimizer_state_bytes: not recorded yet when they were measured): ln at N = 16.")


def test_what_old_results_kept_is_not_known(make: Make) -> None:
    (figure,) = pictures(several(make(), peak_memory_bytes=0, method_state_bytes=3 * MIB))
    assert len(panels(figure)) == 1
    assert not any(note.startswith("What is kept") for note in figure.notes)


def test_who_lacks_a_number_in_one_panel_is_named_there(make: Make) -> None:
    made = several(make())
    for seed in (1, 2, 3):
        made.cell("ln", 16, seed, epochs([1.0] * 3, [0.1, 0.6, 0.6], steps=[10] * 3))
    (figure,) = pictures(made)
    steps, memory = panels(figure)
    assert {cross.method for cross in steps.crosses} - {cross.method for cross in memory.crosses} == {"ln"}
    (note,) = (note for note in figure.notes if note.startswith("Not shown over"))
    assert note.startswith("Not shown over peak memory, MiB (no peak_memory_bytes")
    assert note.endswith(": ln at N = 16.")


def test_times_that_are_not_comparable_are_open_and_off_the_front(make: Make) -> None:
    made = several(make())
    for seed in (1, 2, 3):
        rows = epochs([0.5] * 3, [0.1, 0.6, 0.6], steps=[10] * 3)
        made.cell("ln", 16, seed, rows, peak_memory_bytes=MIB, jobs=2)
    (figure,) = figures(views(made.read()), every=True)[1:2]
    for panel in panels(figure):
        (disturbed,) = (cross for cross in panel.crosses if cross.method == "ln")
        assert disturbed.y_interval is None
        assert disturbed.open
        assert not any(cross.open for cross in panel.crosses if cross.method == "bnp")
        assert (disturbed.x, disturbed.y) not in panel.front
    reason = "not comparable: 2 blocks were measured at a time"
    assert f"Open, without an interval ({reason}): ln at N = 16." in figure.notes


def test_each_target_and_three_batch_sizes_have_a_figure(make: Make) -> None:
    made = several(make(), sizes=(4, 8, 16, 32))
    made.document["targets"] = [0.5, 0.6, 0.99]
    found = pictures(made)
    assert [len(panels(figure)) for figure in found] == [6, 2] * 2
    assert [figure.title.split()[-1] for figure in found] == ["0.5", "0.5", "0.6", "0.6"]
    assert [panel.title for panel in panels(found[0])] == [f"batch size {size}" for size in (4, 8, 16)] * 2
    assert len({figure.name for figure in found}) == 4


def test_a_target_may_be_a_loss(make: Make) -> None:
    made = make()
    made.document["metric"], made.document["targets"] = "test_loss", [0.5]
    for method, losses in (("vanilla", [0.9, 0.7, 0.4]), ("bnp", [0.9, 0.5, 0.4])):
        for seed in (1, 2):
            made.cell(method, 16, seed, epochs([1.0] * 3, test_loss=losses, steps=[10] * 3))
    (figure,) = pictures(made)
    assert figure.title == "What it takes to reach test loss 0.5"
    assert [cross.x for cross in panels(figure)[0].crosses] == [30, 20]


def test_a_suite_without_targets_has_none(make: Make) -> None:
    made = several(make())
    made.document["targets"] = []
    assert pictures(made) == []


def test_one_method_alone_makes_no_picture(make: Make) -> None:
    made = make()
    made.document["targets"] = [0.5]
    made.cell("bnp", 16, 1, epochs([1.0] * 3, [0.6] * 3, steps=[10] * 3))
    assert pictures(made) == []


def test_it_is_drawn_in_every_form(make: Make) -> None:
    made = several(make(), sizes=(8, 16))
    written = {path.name for path in write_figures(made.read(), made.out / "figures") if "pareto" in path.name}
    assert written == {f"made-pareto.{extension}" for extension in ("svg", "pdf", "png", "txt")}
    assert "front" in (made.out / "figures" / "made-pareto.txt").read_text().lower()
