"""From a file to its cells: sweep, overrides, --only, --seeds, --epochs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnpbench.errors import SuiteError
from bnpbench.suite import Cell, Suite
from bnpbench.suite.expand import merged
from tests.support.suite_texts import SMALL, changed

Load = Callable[[str], Suite]


def cells(suite: Suite, **options: Any) -> tuple[Cell, ...]:
    return suite.cells(device="cpu", threads=2, **options)


def told(suite: Suite, *names: str, **options: Any) -> list[tuple[Any, ...]]:
    """For each cell its label and the settings asked for."""
    found = []
    for cell in cells(suite, **options):
        values: list[Any] = [cell.label]
        for name in names:
            value: Any = cell.settings
            for part in name.split("."):
                value = getattr(value, part)
            values.append(value)
        found.append(tuple(values))
    return found


def test_the_first_axis_turns_slowest(load: Load) -> None:
    expected = list(product(["vanilla", "bn", "bnp"], [16, 256], [1, 2, 3]))
    assert told(load(SMALL), "batch_size", "seed") == expected


def test_a_suite_without_axes_is_one_cell(load: Load) -> None:
    text = SMALL.split("[sweep]")[0] + 'method = "bnp"\nbatch_size = 16\n'
    assert told(load(text), "batch_size", "seed") == [("bnp", 16, 1)]


def test_an_axis_stands_before_the_default(load: Load) -> None:
    assert told(load(changed(SMALL, "epochs = 20", "epochs = 20\nseed = 9")), "seed")[0] == ("vanilla", 1)


def test_nothing_is_left_at_auto(load: Load) -> None:
    for cell in load(SMALL).cells(device="cuda", threads=7):
        assert (cell.settings.device, cell.settings.threads, cell.settings.engine) == ("cuda", 7, "graphed")
    assert {cell.settings.engine for cell in load(SMALL).cells(device="cpu", threads=7)} == {"eager"}
    fixed = load(changed(SMALL, "epochs = 20", 'epochs = 20\ndevice = "cpu"\nthreads = 1'))
    assert fixed.devices() == {"cpu"}
    assert {(c.settings.device, c.settings.threads) for c in fixed.cells(device="cuda", threads=7)} == {("cpu", 1)}


def test_the_processes_of_several_devices_share_the_threads(load: Load) -> None:
    several = load(SMALL + "devices = [1, 2, 8]\n")
    found = {(c.settings.devices, c.settings.threads) for c in several.cells(device="cpu", threads=7)}
    assert found == {(1, 7), (2, 3), (8, 1)}
    engines = {(c.settings.devices, c.settings.engine) for c in several.cells(device="cuda", threads=7)}
    assert engines == {(1, "graphed"), (2, "eager"), (8, "eager")}


def test_devices_asked_for(load: Load) -> None:
    assert load(SMALL).devices() == {"auto"}
    assert load(SMALL + 'device = ["cpu", "cuda"]\n').devices() == {"cpu", "cuda"}


def test_a_nested_table_is_a_dotted_axis(load: Load) -> None:
    suite = load(changed(SMALL, "seed = [1, 2, 3]", "optimizer.lr = [0.1, 0.5]\noptimizer.momentum = [0, 0.9]"))
    assert told(suite, "optimizer.lr", "optimizer.momentum", only=["method=bn", "batch_size=16"]) == [
        ("bn", 0.1, 0.0),
        ("bn", 0.1, 0.9),
        ("bn", 0.5, 0.0),
        ("bn", 0.5, 0.9),
    ]


def test_a_dotted_axis_may_complete_a_table(load: Load) -> None:
    text = changed(SMALL, ", lr = 0.1", "") + "optimizer.lr = [0.25]\n"
    assert {row[1] for row in told(load(text), "optimizer.lr")} == {0.25}


def test_a_value_for_a_whole_table_replaces_it(load: Load) -> None:
    text = changed(SMALL, "lr = 0.1", "lr = 0.1, momentum = 0.9") + 'optimizer = [{ kind = "sgd", lr = 0.5 }, "adam"]\n'
    kinds = {(c.settings.optimizer.kind, c.settings.optimizer.lr) for c in cells(load(text))}
    assert kinds == {("sgd", 0.5), ("adam", 1e-3)}
    assert all(getattr(c.settings.optimizer, "momentum", 0.0) == 0.0 for c in cells(load(text)))


def test_a_list_in_an_axis_is_one_value_of_a_setting_that_is_a_list(load: Load) -> None:
    suite = load(changed(SMALL, "seed = [1, 2, 3]", "network.hidden = [[10], [20, 30]]"))
    assert {row[1] for row in told(suite, "network.hidden")} == {(10,), (20, 30)}


def test_equal_cells_collapse(load: Load) -> None:
    suite = load(changed(SMALL, "[1, 2, 3]", "[1, 1, 2]") + 'threads = ["auto", 2]\n')
    assert len(cells(suite)) == 3 * 2 * 2
    assert len(suite.cells(device="cpu", threads=4)) == 3 * 2 * 2 * 2
    spelt = changed(SMALL, '"bnp"', '"bnp", { kind = "bnp" }, { kind = "bnp", rho = 0.99, statistics = "running" }')
    assert len(cells(load(spelt))) == 18


def override(when: str, change: str) -> str:
    return f"[[override]]\nwhen = {when}\nset = {change}\n"


def test_the_later_override_wins(load: Load) -> None:
    text = (
        SMALL
        + override('{ method = "bn" }', "{ optimizer.lr = 0.5 }")
        + override('{ method = "bn", batch_size = 16 }', "{ optimizer.lr = 0.25 }")
    )
    found = dict.fromkeys(told(load(text), "batch_size", "optimizer.lr"))
    assert list(found) == [
        ("vanilla", 16, 0.1),
        ("vanilla", 256, 0.1),
        ("bn", 16, 0.25),
        ("bn", 256, 0.5),
        ("bnp", 16, 0.1),
        ("bnp", 256, 0.1),
    ]


def test_an_override_sees_what_the_ones_before_it_set(load: Load) -> None:
    text = (
        SMALL
        + override('{ method = "bn" }', "{ optimizer = 'adam' }")
        + override('{ optimizer = "adam" }', "{ epochs = 5 }")
    )
    assert set(told(load(text), "epochs")) == {("vanilla", 20), ("bn", 5), ("bnp", 20)}


def test_an_override_sees_defaults(load: Load) -> None:
    text = SMALL + override('{ method = { kind = "bnp", statistics = "running" }, seed = [1, 3] }', "{ epochs = 5 }")
    assert {(row[1], row[2]) for row in told(load(text), "seed", "epochs") if row[0] == "bnp"} == {
        (1, 5),
        (2, 20),
        (3, 5),
    }


def test_a_table_of_another_kind_replaces_and_of_the_same_kind_merges(load: Load) -> None:
    text = changed(SMALL, "lr = 0.1", "lr = 0.1, momentum = 0.9")
    text += override('{ method = "bn" }', '{ optimizer = { kind = "sgd", lr = 0.5 } }')
    text += override('{ method = "bnp" }', '{ optimizer = { kind = "adam", lr = 0.01 } }')
    found = {c.label: c.settings.optimizer.model_dump() for c in cells(load(text))}
    assert found["bn"] == {"kind": "sgd", "lr": 0.5, "momentum": 0.9, "nesterov": False}
    assert found["bnp"] == {"kind": "adam", "lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8}


def test_a_number_sets_a_weight_decay_and_keeps_where_it_goes(load: Load) -> None:
    text = changed(SMALL, "epochs = 20", 'epochs = 20\nweight_decay = { where = "l2" }')
    text += override('{ method = "bn" }', "{ weight_decay = 1e-4 }")
    found = {c.label: (c.settings.weight_decay.value, c.settings.weight_decay.where) for c in cells(load(text))}
    assert found == {"vanilla": (0.0, "l2"), "bn": (1e-4, "l2"), "bnp": (0.0, "l2")}


def test_a_label_tells_equal_methods_apart(load: Load) -> None:
    text = changed(SMALL, '"vanilla"', '"vanilla", { kind = "vanilla", label = "with Adam" }')
    text += override('{ method = "with Adam" }', "{ optimizer = 'adam' }")
    found = {c.label: c.settings.optimizer.kind for c in cells(load(text))}
    assert found == {"vanilla": "sgd", "with Adam": "adam", "bn": "sgd", "bnp": "sgd"}


RATES = changed(SMALL, "seed = [1, 2, 3]", "optimizer.lr = [0.1, 0.5]\nthreads = [1, 2]")


def test_a_list_of_an_override_goes_along_its_axis(load: Load) -> None:
    text = RATES + override('{ method = "bn" }', '{ optimizer = { kind = "adam", lr = [0.001, 0.01] } }')
    text += override('{ method = "bnp" }', "{ optimizer.lr = [0.2, 0.6], threads = [3, 4] }")
    found = told(load(text), "optimizer.kind", "optimizer.lr", "threads", only=["batch_size=16"])
    assert found == [
        *product(["vanilla"], ["sgd"], [0.1, 0.5], [1, 2]),
        *product(["bn"], ["adam"], [0.001, 0.01], [1, 2]),
        *product(["bnp"], ["sgd"], [0.2, 0.6], [3, 4]),
    ]


def test_a_list_of_an_override_may_hold_tables(load: Load) -> None:
    text = changed(SMALL, "seed = [1, 2, 3]", 'optimizer = [{ kind = "sgd", lr = 0.1 }, "adam"]')
    text += override('{ method = "bn" }', '{ optimizer = [{ kind = "sgd", lr = 0.5, momentum = 0.9 }, "adamw"] }')
    found = set(told(load(text), "optimizer.kind", "optimizer.lr"))
    assert found == {
        *product(("vanilla", "bnp"), ("sgd",), (0.1,)),
        *product(("vanilla", "bnp"), ("adam",), (1e-3,)),
        ("bn", "sgd", 0.5),
        ("bn", "adamw", 1e-3),
    }


@pytest.mark.parametrize(
    ("change", "line", "key", "message"),
    [
        ("{ optimizer.lr = [0.1] }", 14, "override[0].set.optimizer.lr", "1 value along an axis of 2; give one for"),
        ('{ optimizer.lr = [0.1, "x"] }', 14, "override[0].set.optimizer.lr", 'expected a number, not "x"'),
        ("{ optimizer.lr = [0.1, -1.0] }", 14, "override[0].set.optimizer.lr", "must be above 0, not -1.0"),
        ("{ epochs = [1, 2] }", 14, "override[0].set.epochs", "expected a whole number, not a list"),
    ],
)
def test_a_list_that_does_not_go_along_an_axis_is_told(
    refuse: Callable[[str], SuiteError], change: str, line: int, key: str, message: str
) -> None:
    error = refuse(RATES + override('{ method = "bn" }', change))
    assert (error.line, error.key) == (line, key)
    assert message in error.message


# --- --only, --seeds, --epochs ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("only", "count"),
    [
        ([], 24),
        (["method=bn"], 6),
        (["method=bn,bnp"], 18),
        (["method=bn", "batch_size=16"], 3),
        (["method=bn,bnp", "batch_size=16,256", "seed=1"], 6),
        (["method=bnp(statistics=batch)"], 6),
        (['method={kind="bnp",statistics="running"}'], 6),
        (["method.statistics=batch"], 6),
        (["method.kind=bnp", "method.statistics=batch"], 6),
        (["method.rho=0.99"], 12),
        (["optimizer.lr=0.1"], 24),
        (["network.hidden=[100,100]"], 24),
        (["network=fc", "dataset=digits"], 24),
        (["deterministic=false"], 24),
        (["seed = 1, 3"], 16),
    ],
)
def test_only(load: Load, only: list[str], count: int) -> None:
    suite = load(changed(SMALL, '"bnp"', '"bnp", { kind = "bnp", statistics = "batch" }'))
    chosen = cells(suite, only=only)
    assert len(chosen) == count
    assert set(chosen) <= set(cells(suite))


@pytest.mark.parametrize(
    ("only", "message", "closest"),
    [
        ("method", "write KEY=VALUE", None),
        ("method=", "write KEY=VALUE", None),
        ("=bn", "write KEY=VALUE", None),
        ("method=bn,,bnp", "write KEY=VALUE", None),
        ("metod=bn", "unknown key", "method"),
        ("optimizer.lrr=1", "unknown key", "lr"),
        ("method=vanila", "no cell has this method; there are: vanilla, bn, bnp", "vanilla"),
        ("batch_size=17", "no cell has this batch_size; there are: 16, 256", None),
        ("seed=true", "no cell has this seed", None),
        ('batch_size="16"', "no cell has this batch_size", None),
        ("network.hidden=100", "no cell has this network", None),
        ("seed=2022-01-31", "no cell has this seed", None),
        ("method=" + "[" * 500, "no cell has this method", None),
    ],
)
def test_only_refuses_what_picks_nothing(load: Load, only: str, message: str, closest: str | None) -> None:
    with pytest.raises(SuiteError) as caught:
        cells(load(SMALL), only=[only])
    assert message in str(caught.value)
    assert "--only" in str(caught.value)
    assert caught.value.closest == closest


def test_only_refuses_what_picks_nothing_together(load: Load) -> None:
    with pytest.raises(SuiteError, match="no cell matches all of --only seed=1 --only seed=2"):
        cells(load(SMALL), only=["seed=1", "seed=2"])


def test_seeds_are_the_first_of_the_axis(load: Load) -> None:
    suite = load(changed(SMALL, "[1, 2, 3]", "[7, 3, 5]"))
    assert [row[1] for row in told(suite, "seed", seeds=2)] == [7, 3] * 6
    with pytest.raises(SuiteError, match=r"--seeds 9: the suite small has 3 seeds; ask for no more"):
        cells(suite, seeds=9)
    with pytest.raises(SuiteError, match="has 1 seed"):
        cells(load(changed(SMALL, "seed = [1, 2, 3]", "")), seeds=2)


def test_epochs_leave_the_schedule_alone(load: Load) -> None:
    suite = load(changed(SMALL, "epochs = 20", 'epochs = 20\nschedule = { kind = "steps", epochs = [10] }'))
    shortened = cells(suite, epochs=2)
    assert {c.settings.epochs for c in shortened} == {2}
    assert [c.settings.schedule for c in shortened] == [c.settings.schedule for c in cells(suite)]


@pytest.mark.parametrize("option", ["seeds", "epochs"])
def test_numbers_below_one_are_refused(load: Load, option: str) -> None:
    with pytest.raises(SuiteError, match=f"--{option} must be at least 1, not 0"):
        cells(load(SMALL), **{option: 0})


# --- [select] ---------------------------------------------------------------------------------


def test_where_a_value_is_chosen_the_cells_are_trials_of_one_seed(load: Load) -> None:
    text = changed(SMALL, "epochs = 20", "epochs = 20\nvalidation = 0.1") + "optimizer.lr = [0.1, 0.5]\n"
    suite = load(text + '[select]\nover = "optimizer.lr"\nby = "validation_accuracy"\n')
    assert suite.select is not None
    assert suite.select.over == "optimizer.lr"
    assert {c.role for c in cells(suite)} == {"trial"}
    assert {c.settings.seed for c in cells(suite)} == {1}
    assert len(cells(suite)) == 3 * 2 * 2
    assert {c.role for c in cells(load(text))} == {"final"}


# --- merging ----------------------------------------------------------------------------------

KEYS = st.sampled_from(["kind", "a", "b", "c"])
LEAVES = st.integers(0, 2) | st.lists(st.integers(0, 2), max_size=2)
TABLES = st.recursive(
    st.dictionaries(KEYS, LEAVES, max_size=3), lambda t: st.dictionaries(KEYS, t | LEAVES, max_size=3), max_leaves=6
)


@given(base=TABLES, change=TABLES)
def test_merging_gives_every_leaf_of_the_change_and_loses_none_of_the_base_but_by_kind(base: Any, change: Any) -> None:
    before = repr((base, change))
    whole = merged(base, change)
    assert repr((base, change)) == before
    _check_merged(whole, base, change)


def _check_merged(whole: Any, base: Any, change: Any) -> None:
    if not isinstance(base, dict) or not isinstance(change, dict):
        assert whole == change
        return
    replaced = "kind" in base and "kind" in change and base["kind"] != change["kind"]
    assert whole.keys() == (change.keys() if replaced else base.keys() | change.keys())
    for name, value in whole.items():
        if name not in change:
            assert value == base[name]
        elif replaced or name not in base:
            assert value == change[name]
        else:
            _check_merged(value, base[name], change[name])


# --- axes of a part beside the whole -----------------------------------------------------------

METHODS = """
[train]
dataset = { kind = "synthetic", shape = [4], train = 40, test = 10, classes = 3 }
network = { kind = "fc", hidden = [5] }
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 8
epochs = 1
validation = 0.2
[sweep]
"method.rho" = [0.5, 0.9]
method = ["vanilla", { kind = "bnp", eps1 = 0.1 }]
seed = [1, 2]
optimizer.lr = [0.1, 0.2]
"""


def test_a_part_of_an_axis_is_one_where_the_kind_has_it(load: Load) -> None:
    """In whatever order they are written; the cells of a kind without the option collapse."""
    found = [(one.settings.method.kind, getattr(one.settings.method, "rho", None)) for one in cells(load(METHODS))]
    assert sorted(set(found), key=str) == [("bnp", 0.5), ("bnp", 0.9), ("vanilla", None)]
    assert len(found) == 3 * 2 * 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"method.rho"', '"method.roh"', r"sweep\.'method\.roh': unknown key.*\(did you mean 'rho'\?\)"),
        (
            '"method.rho" = [0.5, 0.9]',
            '"method.groups" = [1, 2]',
            r"no method here has an option 'groups': vanilla, bnp",
        ),
        (
            '"method.rho" = [0.5, 0.9]',
            '"method.rho" = [0.5, 2.0]',
            r"toml:10: sweep\.'method\.rho'\[1\]: must be below 1, not 2\.0",
        ),
        ('"method.rho"', '"seed.rho"', r"sweep\.'seed\.rho': "),
    ],
)
def test_a_faulty_part_is_told_where_it_stands(load: Load, old: str, new: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        load(changed(METHODS, old, new))


def test_several_axes_are_chosen_from_together(load: Load) -> None:
    """The best pair of each method, on all seeds; a method without the option chooses from the other axis alone."""
    suite = load(METHODS + '[select]\nover = ["optimizer.lr", "method.rho"]\n')
    trials = cells(suite)
    assert [one.label for one in trials] == ["vanilla"] * 2 + ["bnp(eps1=0.1)"] * 4
    points = [(one.label, one.settings.optimizer.lr, getattr(one.settings.method, "rho", None)) for one in trials]
    best = {("vanilla", 0.2, None), ("bnp(eps1=0.1)", 0.1, 0.9)}
    scores = {one.key: 0.9 if point in best else 0.5 for one, point in zip(trials, points, strict=True)}
    finals = suite.finals(scores, device="cpu", threads=2)
    assert [
        (one.label, one.settings.optimizer.lr, getattr(one.settings.method, "rho", None), one.settings.seed)
        for one in finals
    ] == [(label, lr, rho, seed) for label, lr, rho in sorted(best, reverse=True) for seed in (1, 2)]
    waits = {key: score for key, score in scores.items() if key != trials[-1].key}
    assert {one.label for one in suite.finals(waits, device="cpu", threads=2)} == {"vanilla"}


def test_one_label_stands_for_a_method_with_all_values_that_are_tried(load: Load) -> None:
    text = changed(METHODS, "eps1 = 0.1 }", 'label = "mine" }')
    with pytest.raises(SuiteError, match="label 'mine' stands for two methods"):
        load(text)
    suite = load(text + '[select]\nover = ["optimizer.lr", "method.rho"]\n')
    assert {one.label for one in cells(suite)} == {"vanilla", "mine"}


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ('["optimizer.lr", "method.roh"]', r"select\.over\[1\]: 'method.roh' is no axis .*did you mean 'method.rho'"),
        ('["optimizer.lr", "seed"]', r"select\.over\[1\]: a seed is not chosen by its result"),
        ('["optimizer.lr", "optimizer.lr"]', r"select\.over\[1\]: 'optimizer.lr' is given twice"),
        ("[]", r"select\.over"),
        ("3", r"select\.over"),
    ],
)
def test_a_faulty_choice_is_told(load: Load, over: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        load(METHODS + f"[select]\nover = {over}\n")


def test_a_single_axis_in_a_list_is_the_axis(load: Load) -> None:
    one, other = (load(METHODS + f"[select]\nover = {over}\n") for over in ('"optimizer.lr"', '["optimizer.lr"]'))
    assert [cell.key for cell in cells(one)] == [cell.key for cell in cells(other)]
    scores = {cell.key: cell.settings.optimizer.lr for cell in cells(one)}
    finals = [suite.finals(scores, device="cpu", threads=2) for suite in (one, other)]
    assert [cell.key for cell in finals[0]] == [cell.key for cell in finals[1]]
