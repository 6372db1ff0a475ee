"""What all tests share."""

from __future__ import annotations

import gc

import pytest
import torch

SLOW = {"execution", "cli", "training", "profiling"}  # folders whose files take minutes, and are begun first

torch.set_num_threads(1)  # the tensors are small: a second thread would only wait
gc.freeze()  # every epoch begins with a collection, which need not look at what was imported


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.isdisjoint(item.path.parts))
