"""A small suite to vary, and a claim to append."""

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


def changed(text: str, old: str, new: str) -> str:
    """``text`` with its one ``old`` replaced."""
    assert text.count(old) == 1, (old, text.count(old))
    return text.replace(old, new)


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
