"""Suites to vary, and what to append to them."""

from __future__ import annotations

SMALL = """\
name = "small"
[train]
dataset = "digits"
network = { kind = "fc", hidden = [100, 100] }
optimizer = { kind = "sgd", lr = 0.1 }
epochs = 20
[sweep]
method = ["vanilla", "bn", "bnp"]
batch_size = [16, 256]
seed = [1, 2, 3]
"""
CLAIM = """\
[[claim]]
says = "bnp costs no more than bn"
left = { method = "bnp" }
right = { method = "bn" }
where = { batch_size = [16, 256] }
metric = "train_seconds"
ratio = { at_most = 1.0 }
"""


PROFILED = """
name = "small"
[train]
dataset = { kind = "synthetic", shape = [300], train = 2000, test = 50, classes = 4 }
network = { kind = "fc", hidden = [100, 100] }
optimizer = { kind = "sgd", lr = 0.1 }
epochs = 2
threads = 1
[sweep]
method = ["vanilla", "bn", "bnp"]
batch_size = [1, 64]
seed = [1, 2]
"""
DOUBTS = """
name = "doubts"
[train]
dataset = { kind = "synthetic", shape = [8], classes = 3, train = 60, test = 30 }
network = { kind = "fc", hidden = [8] }
optimizer = { kind = "sgd", lr = 0.1 }
batch_size = 20
epochs = 2
threads = 1
"""
SWEEP = '[sweep]\nmethod = ["vanilla", "bnp"]\nseed = [1, 2]\n'


def changed(text: str, old: str, new: str) -> str:
    """``text`` with its one ``old`` replaced."""
    assert text.count(old) == 1, (old, text.count(old))
    return text.replace(old, new)
