"""The parts of a data set: the folders that hold them, and how many examples each has. No torch."""

from __future__ import annotations

PARTS = ("train", "val")
"""The folders of an image folder in ImageNet's layout."""


def split_sizes(train: int, train_limit: int | None, validation: float) -> tuple[int, int]:
    """Numbers of examples to train on and to validate on, out of ``train``.

    The share ``validation`` is held out, rounded to a whole number of examples; of the rest at most ``train_limit``
    are used.
    """
    held_out = round(train * validation)
    return min(train - held_out, train if train_limit is None else train_limit), held_out
