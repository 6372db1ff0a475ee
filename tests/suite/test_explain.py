"""Each fault of a suite is refused with its line, its key path, what is wrong, and the closest valid name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bnpbench.errors import SuiteError
from bnpbench.methods.batch_norm import BatchNorm
from bnpbench.suite import load_suite, shipped_suites
from tests.support.suite_texts import CLAIM, SMALL, changed

S, C = SMALL, SMALL + CLAIM
BN_ONE_EPOCH = '[[override]]\nwhen = { method = "bn" }\nset = { epochs = 1 }\n'
REFERENCE = '[[reference]]\ncell = { method = "bn" }\nmetric = "train_seconds"\nvalue = 16.08\nsource = "Table 1"\n'


SETTINGS = [
    (changed(S, "epochs", "epcohs"), 6, "train.epcohs", "unknown key", "epochs"),
    (changed(S, "lr =", "lrr ="), 5, "train.optimizer.lrr", "unknown key", "lr"),
    (changed(S, ", lr = 0.1", ""), 5, "train.optimizer.lr", "is missing", None),
    (changed(S, "lr = 0.1", "lr = 0"), 5, "train.optimizer.lr", "must be above 0, not 0", None),
    (changed(S, "lr = 0.1", 'lr = "0.1"'), 5, "train.optimizer.lr", 'expected a number, not "0.1"', None),
    (
        changed(S, '"sgd"', '"sdg"'),
        5,
        "train.optimizer",
        'unknown kind "sdg"; one of adam, adamw, kron, muon, sgd, shampoo, soap',
        "sgd",
    ),
    (
        changed(S, 'kind = "sgd", ', ""),
        5,
        "train.optimizer",
        "needs a kind: one of adam, adamw, kron, muon, sgd, shampoo, soap",
        None,
    ),
    (changed(S, '{ kind = "sgd", lr = 0.1 }', '"sgd"'), 5, "train.optimizer.lr", "is missing", None),
    (changed(S, '"digits"', '"digit"'), 3, "train.dataset", "one of cifar10, cifar100", "digits"),
    (changed(S, "[100, 100]", "100"), 4, "train.network.hidden", "expected a list, not 100", None),
    (changed(S, "[100, 100]", '[100, "a"]'), 4, "train.network.hidden[1]", "expected a whole number", None),
    (changed(S, "= 20", "= 20\nthreads = 0"), 7, "train.threads", "must be at least 1 or be 'auto', not 0", None),
    (changed(S, "= 20", '= 20\nthreads = "ato"'), 7, "train.threads", "'auto' or a whole number", "auto"),
    (
        changed(S, "= 20", '= 20\nengine = "eagre"'),
        7,
        "train.engine",
        "expected 'auto', 'eager', 'compiled' or 'graphed'",
        "eager",
    ),
    (changed(S, "= 20", '= 20\nweight_decay = "l2"'), 7, "train.weight_decay", "a number or a table", None),
    (changed(S, "= 20", "= 20\nplugins = []"), 7, "train.plugins", "unknown key", None),
    (
        changed(S, "= 20", '= 20\nschedule = { kind = "steps", epochs = [] }'),
        7,
        "train.schedule.epochs",
        "1 or more elements",
        None,
    ),
    (
        changed(
            S, "= 20", '= 20\nschedule = { kind = "steps", epochs = [2], warmup = { kind = "linear", start = 1 } }'
        ),
        7,
        "train.schedule.warmup",
        "exactly one of iterations and epochs",
        None,
    ),
    (changed(S, '"bnp"', '"bnq"'), 8, "sweep.method[2]", 'unknown kind "bnq"', "bn"),
    (changed(S, '"bnp"', "3"), 8, "sweep.method[2]", "expected a table or one of 4things, bn", None),
    (changed(S, '"bnp"', '{ kind = "bnp", rhoo = 0.9 }'), 8, "sweep.method[2].rhoo", "unknown key", "rho"),
    (changed(S, '"bnp"', '{ kind = "bnp", rho = 1 }'), 8, "sweep.method[2].rho", "must be below 1, not 1", None),
    (
        changed(S, '"bnp"', '{ kind = "gn", groups = 2, channels_per_group = 2 }'),
        8,
        "sweep.method[2]",
        "not both",
        None,
    ),
    (changed(S, "[16, 256]", "[16, 256.0]"), 9, "sweep.batch_size[1]", "expected a whole number, not 256.0", None),
    (changed(S, "[16, 256]", "[16, true]"), 9, "sweep.batch_size[1]", "expected a whole number, not true", None),
    (changed(S, "[16, 256]", "16"), 9, "sweep.batch_size", "an axis is a list", None),
    (changed(S, "[16, 256]", "[]"), 9, "sweep.batch_size", "at least one value", None),
    (changed(S, "batch_size = [16, 256]\n", ""), 2, "train", "batch_size is missing", None),
    (changed(S, "batch_size =", "batchsize ="), 9, "sweep.batchsize", "unknown key", "batch_size"),
    (S + "optimizer.momntum = [0.5]\n", 11, "sweep.optimizer.momntum", "unknown key", "momentum"),
    (S + "optimizer.lr = 0.1\n", 11, "sweep.optimizer.lr", "an axis is a list", None),
    (S + "optimizer.lr = [0.1, -1]\n", 11, "sweep.optimizer.lr[1]", "must be above 0, not -1", None),
    (S + "optimizer.nesterov = [true]\n", 11, "sweep.optimizer.nesterov[0]", "needs a momentum above 0", None),
    (S + "method.rho = [0.9]\n", 11, None, "Cannot", None),
    (changed(S, "[train]", "[trian]"), 2, "trian", "unknown key", "train"),
    (changed(S, '"small"', '"../small"'), 1, "name", "letters, digits", None),
    (changed(S, '"small"', "3"), 1, "name", "expected a text, not 3", None),
    ("train = 3\n", 1, "train", "expected a table, not 3", None),
    ("[[sweep]]\nseed = 1\n", 1, "sweep", "expected a table, not a list", None),
    ("", None, "train", "dataset is missing", None),
]
DATA = [
    (changed(S, "256]", "5000]"), 9, "sweep.batch_size[1]", "5,000 is more than the training data: 1,437", None),
    (changed(S, "= 20", "= 20\nvalidation = 0.9"), 10, "sweep.batch_size[1]", "data: 144 of 1,437 examples", None),
    (changed(S, "= 20", "= 20\ntrain_limit = 200"), 10, "sweep.batch_size[1]", "data: 200 of 1,437 examples", None),
    (changed(S, "= 20", "= 20\ntrain_limit = 2000"), 7, "train.train_limit", "digits has 1,437", None),
    (
        changed(S, "= 20", "= 20\ntrain_limit = 1300\nvalidation = 0.1"),
        7,
        "train.train_limit",
        "digits has 1,293 to train on after validation took 144",
        None,
    ),
    (changed(S, "= 20", "= 20\nvalidation = 1e-4"), 7, "train.validation", "leaves one side empty", None),
    (changed(S, '{ kind = "fc", hidden = [100, 100] }', '"cnn"'), 4, "train.network", "at least 18 x 18", None),
    (
        changed(S, '"digits"', '{ kind = "synthetic", shape = [64] }\naugment = "crop-flip"'),
        4,
        "train.augment",
        "needs images",
        None,
    ),
    (changed(S, '"digits"', '{ kind = "synthetic", train = 100 }'), 9, "sweep.batch_size[1]", "data: 100", None),
    (
        changed(S, '{ kind = "fc", hidden = [100, 100] }', '{ kind = "resnet", depth = 21 }'),
        4,
        "train.network",
        "depth is 6n+2",
        None,
    ),
]
OVERRIDES = [
    (S + BN_ONE_EPOCH.replace('"bn"', '"ln"'), 12, "override[0].when", "there are: vanilla, bn, bnp", None),
    (S + BN_ONE_EPOCH + BN_ONE_EPOCH.replace('"bn"', '"bm"'), 15, "override[1].when", "matches no cell", "bn"),
    (S + BN_ONE_EPOCH.replace("method", "metod"), 12, "override[0].when.metod", "unknown key", "method"),
    (S + BN_ONE_EPOCH.replace('"bn"', "{ rhoo = 1 }"), 12, "override[0].when.method.rhoo", "unknown key", "rho"),
    (S + BN_ONE_EPOCH.replace("epochs", "epoch"), 13, "override[0].set.epoch", "unknown key", "epochs"),
    (S + BN_ONE_EPOCH.replace("epochs = 1", "optimizer.lr = -1"), 13, "override[0].set.optimizer.lr", "above 0", None),
    (S + BN_ONE_EPOCH.replace("epochs = 1", "method.rho = 0.5"), 13, "override[0].set.method.rho", "unknown key", None),
    (S + BN_ONE_EPOCH.replace("epochs = 1", "batch_size = 2000"), 13, "override[0].set.batch_size", "more than", None),
    (S + BN_ONE_EPOCH.replace("set = { epochs = 1 }\n", ""), 11, "override[0].set", "is missing", None),
    (S + BN_ONE_EPOCH.replace("[[override]]", "[override]"), 11, "override", "write [[override]]", None),
]
TABLES = [
    (S + '[measure]\ninterleave = ["metod"]\n', 12, "measure.interleave[0]", "no axis of [sweep]", "method"),
    (S + '[measure]\ninterleave = ["network"]\n', 12, "measure.interleave[0]", "method, batch_size, seed", None),
    (S + '[measure]\ninterleave = "method"\n', 12, "measure.interleave", "expected a list", None),
    (S + "[measure]\nwarmup_epoch = 1\n", 12, "measure.warmup_epoch", "unknown key", "warmup_epochs"),
    (S + '[measure]\ninterval = "two"\n', 12, "measure.interval", 'such as "2%" or 0.02', None),
    (S + '[measure]\ninterval = "2%"\n', 11, "measure", "give interleave too", None),
    (S + "[measure]\nmax_epochs = 9\n", 11, "measure", "give interval too", None),
    (
        S + BN_ONE_EPOCH.replace("epochs = 1", "threads = 1") + '[measure]\ninterleave = ["method"]\n',
        13,
        "override[0].set.threads",
        'must agree; here "auto" and 1',
        None,
    ),
    (S + '[select]\nover = "optimizer.lr"\n', 12, "select.over", "no axis of [sweep]", None),
    (S + '[select]\nover = "batch_sise"\n', 12, "select.over", "no axis of [sweep]", "batch_size"),
    (S + '[select]\nover = "batch_size"\n', 2, "train.validation", "choosing by validation_accuracy", None),
    (
        S + '[select]\nover = "batch_size"\nby = "test_accuracy"\n',
        13,
        "select.by",
        "expected 'validation",
        "validation_accuracy",
    ),
    (S + "[probe]\nneuron = 1\n", 11, "probe.layer", "is missing", None),
    (S + '[probe]\nlayer = "output"\nneuron = -1\n', 13, "probe.neuron", "must be at least 0", None),
    (S + "[report]\ntargets = [0.5, 95]\n", 12, "report.targets", "a share, at most 1, not 95", None),
    (S + "[report]\ntargets = [0.5, 0.5]\n", 12, "report.targets", "twice", None),
    (S + '[report]\nmetric = "train_seconds"\n', 12, "report.metric", "one of train_loss, train_accuracy", None),
    (S + REFERENCE.replace("seconds", "secs"), 13, "reference[0].metric", "unknown metric", "train_seconds"),
    (S + REFERENCE.replace('"bn"', '"ln"'), 12, "reference[0].cell", "matches no cell", None),
    (S + REFERENCE.replace("value = 16.08\n", ""), 11, "reference[0].value", "is missing", None),
    ('plugins = ["my.py"]\n' + S, 1, "plugins[0]", "--allow-plugins", None),
    ('plugins = ["../my.py"]\n' + S, 1, "plugins[0]", "inside the suite's folder", None),
    ('plugins = ["/etc/my.py"]\n' + S, 1, "plugins[0]", "inside the suite's folder", None),
]
LABELS = [
    (changed(S, '"bnp"', '{ kind = "bnp", label = "bn" }'), 8, "sweep.method[2].label", "stands for two methods", None),
    (
        changed(S, '"vanilla"', '{ kind = "vanilla", label = "ln" }'),
        8,
        "sweep.method[0].label",
        "the name of another method",
        None,
    ),
    (
        changed(S, '"bnp"', '{ kind = "bnp", label = "a" }, { kind = "bnp", label = "b" }'),
        8,
        "sweep.method[3].label",
        "'a' and 'b' stand for the same settings",
        None,
    ),
]
CLAIMS = [
    (changed(C, "ratio = { at_most = 1.0 }\n", ""), 11, "claim[0]", "not none", None),
    (C + "difference = { at_most = 1.0 }\n", 11, "claim[0]", "not difference and ratio", None),
    (changed(C, "ratio", "value"), 11, "claim[0]", "leave right out", None),
    (changed(C, 'right = { method = "bn" }\n', ""), 11, "claim[0]", "needs a right side", None),
    (changed(C, "ratio", "raito"), 17, "claim[0].raito", "unknown key", "ratio"),
    (changed(C, "at_most", "at_mots"), 17, "claim[0].ratio.at_mots", "unknown key", "at_most"),
    (changed(C, "at_most = 1.0", ""), 17, "claim[0].ratio", "give at_least, at_most or both", None),
    (changed(C, "at_most", "at_least = 2, at_most"), 17, "claim[0].ratio", "at_least 2 is above at_most 1", None),
    (changed(C, "train_seconds", "train_second"), 16, "claim[0].metric", "unknown metric", "train_seconds"),
    (changed(C, "train_seconds", "depth"), 16, "claim[0].metric", "unknown metric", None),
    (changed(C, "train_seconds", "reached"), 16, "claim[0].metric", "needs a target", None),
    (C + "target = 0.5\n", 18, "claim[0].target", "train_seconds has none", None),
    (C + 'at = "lats"\n', 18, "claim[0].at", "'last', 'best' or 'area' or a table", "last"),
    (C + "at = 3\n", 18, "claim[0].at", "'last', 'best' or 'area' or a table, not 3", None),
    (C + "at = { epohc = 3 }\n", 18, "claim[0].at.epohc", "unknown key", "epoch"),
    (C + "at = { epochs = [3, 1] }\n", 18, "claim[0].at", "first epoch comes after the last", None),
    (C + "at = { epoch = 21 }\n", 18, "claim[0].at", "epoch 21 is after the last one, 20", None),
    (
        changed(C, '{ method = "bnp" }', '{ method = "bnp", at = { epochs = [1, 21] } }'),
        13,
        "claim[0].left.at",
        "epoch 21",
        None,
    ),
    (changed(C, "train_seconds", "rank") + 'at = "last"\n', 18, "claim[0].at", "no figure of an epoch", None),
    (changed(C, "train_seconds", "reached") + 'target = 1\nat = "last"\n', 19, "claim[0].at", "no figure", None),
    (changed(C, '{ method = "bnp" }', '{ metod = "bnp" }'), 13, "claim[0].left.metod", "unknown key", "method"),
    (changed(C, '{ method = "bnp" }', '{ method = "ln" }'), 13, "claim[0].left", "there are: vanilla, bn, bnp", None),
    (changed(C, '{ method = "bnp" }', "{}"), 13, "claim[0].left", "picks 3 cells of seed 1", None),
    (
        changed(C, '{ method = "bnp" }', '{ method = ["bnp", "bn"] }'),
        13,
        "claim[0].left",
        "picks 2 cells of seed 1 where batch_size = 16; one is needed, so say which method",
        None,
    ),
    (changed(C, '{ method = "bn" }', '{ method = "bn", seed = 1 }'), 14, "claim[0].right", "seeds 1, 2, 3 and", None),
    (changed(C, "= [16, 256] }", "= [16, 60] }"), 13, "claim[0].left", "where batch_size = 60", None),
    (changed(C, "= [16, 256] }", "= [16, 256], epocs = 20 }"), 15, "claim[0].where.epocs", "unknown key", "epochs"),
    (changed(C, 'says = "bnp costs no more than bn"\n', ""), 11, "claim[0].says", "is missing", None),
    (changed(C, "[[claim]]", "[[claims]]"), 11, "claims", "unknown key", "claim"),
]


TWO = changed(S, "= 20", "= 20\ndevices = 2")
DEVICES = [
    (changed(S, "= 20", "= 20\ndevices = 0"), 7, "train.devices", "must be at least 1, not 0", None),
    (
        changed(S, "= 20", "= 20\naccumulate = 3"),
        7,
        "train.accumulate",
        "3 micro-batches cannot share a batch of 16 equally",
        None,
    ),
    (
        changed(S, "= 20", "= 20\ndevices = 2\naccumulate = 2"),
        8,
        "train.accumulate",
        "2 micro-batches run on one device, not on 2",
        None,
    ),
    (changed(S, "= 20", "= 20\nclip_norm = 0"), 7, "train.clip_norm", "above 0", None),
    (changed(S, "= 20", "= 20\nlabel_smoothing = 1.0"), 7, "train.label_smoothing", "below 1", None),
    (changed(S, "= 20", "= 20\ndevices = 32"), 7, "train.devices", "32 devices cannot share a batch of 16", None),
    (TWO + '[measure]\ninterleave = ["method"]\n', 7, "train.devices", "leave interleave out", None),
    (TWO + '[probe]\nlayer = "output"\n', 7, "train.devices", "leave [probe] out", None),
    (changed(TWO, "devices", 'engine = "compiled"\ndevices'), 7, "train.engine", "compiled runs on one device", None),
    (changed(TWO, '"bnp"', '"renorm"'), 9, "sweep.method[2]", "renorm takes its statistics from the whole", None),
    (changed(TWO, '"bnp"', '"4things"'), 9, "sweep.method[2]", "4things takes its statistics from the whole", None),
    (changed(S, '"bnp"', '{ kind = "bn", sync = false }'), 8, "sweep.method[2].sync", "leave sync out", None),
    (changed(S, '"bnp"', '{ kind = "bnp", sync = false }'), 8, "sweep.method[2].sync", "unknown key", None),
]

ELSEWHERE = [
    (changed(S, "lr =", "weight_decay = 0.01, lr ="), 5, "train.optimizer.weight_decay",
     "weight_decay is a setting of its own, beside optimizer", None),
    ("epochs = 3\n" + S, 1, "epochs", "epochs is a setting of [train]", None),
    (S + "[measure]\nseed = 3\n", 12, "measure.seed", "seed is a setting of [train]", None),
    (S + '[[override]]\nwhen = { optimizer.seed = 1 }\nset = { epochs = 2 }\n', 12, "override[0].when.optimizer.seed",
     "seed is a setting of its own, beside optimizer", None),
    (S + "optimizer.seed = [0.5]\n", 11, "sweep.optimizer.seed", "beside optimizer", None),
    (changed(S, '{ kind = "fc", hidden = [100, 100] }', '{ kind = "gpt", width = 15 }'), 4, "train.network.width",
     "must be a multiple of 2, not 15", None),
    (changed(S, 'kind = "sgd"', 'kind = "adamW"'), 5, "train.optimizer", "unknown kind", "adamw"),
]  # fmt: skip
INPUT = [
    (
        changed(S, '"bnp"', '{ kind = "bn-pre", input = true }'),
        8,
        "sweep.method[2]",
        "normalizes no layer's input",
        None,
    ),
    (changed(S, '"bnp"', '{ kind = "ln", input = true }'), 8, "sweep.method[2].input", "unknown key", None),
]


QUOTED = [
    (changed(S, "seed =", '"optimizer.lr" = [1.0]\nseed ='), 10, "sweep.'optimizer.lr'", "write optimizer.lr", None),
    (changed(S, "epochs =", '"network.hidden" = [2]\nepochs ='), 6, "train.'network.hidden'", "in quotes", None),
    (S + '[[override]]\nwhen = { "method.kind" = "bn" }\nset = { epochs = 2 }\n', 12, "override[0].when.'method.kind'",
     "write method.kind = ...", None),
    (S + '[[override]]\nwhen = { method = "bn" }\nset = { "optimizer.lr" = 2.0 }\n', 13,
     "override[0].set.'optimizer.lr'", "write optimizer.lr = ...", None),
    (changed(S, "seed =", '"optimiser.lr" = [1.0]\nseed ='), 10, "sweep.'optimiser.lr'", "unknown key", "optimizer"),
]  # fmt: skip
READINGS = [
    (changed(S, '"bnp"', f'{{ kind = "bn", momentum = 0.1, inference = "{inference}" }}'), 8, "sweep.method[2]",
     f'momentum moves running values, by which inference = "{inference}" does not go', None)
    for inference in ("averaged", "frozen")
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "closest"),
    [*QUOTED, *READINGS, *SETTINGS, *DATA, *OVERRIDES, *TABLES, *LABELS, *CLAIMS, *DEVICES, *ELSEWHERE, *INPUT],
)
def test_a_fault_is_placed_and_explained(
    refuse: Callable[[str], SuiteError], text: str, line: int | None, key: str | None, message: str, closest: str | None
) -> None:
    error = refuse(text)
    assert (error.line, error.key, error.closest) == (line, key, closest), error
    assert message in error.message
    assert str(error).startswith(f"{error.file}:{line}: " if line else f"{error.file}: ")


def test_a_momentum_that_is_the_default_names_nothing_that_is_not_there() -> None:
    assert BatchNorm(kind="bn", momentum=0.01, inference="averaged").momentum == 0.01


def test_the_message_reads_as_one_line(refuse: Callable[[str], SuiteError]) -> None:
    error = refuse(changed(S, "lr =", "lrr ="))
    assert str(error) == (
        f"{error.file}:5: train.optimizer.lrr: unknown key; valid here: "
        "kind, lr, momentum, nesterov (did you mean 'lr'?)"
    )


def test_a_shipped_suite_misspelt_names_the_closest() -> None:
    with pytest.raises(SuiteError, match="no suite 'qick' ships with bnpbench") as caught:
        load_suite("qick")
    assert caught.value.closest == "quick"
    assert set(shipped_suites()) >= {"quick", "timing"}
