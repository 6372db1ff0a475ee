"""What all tests share."""

from __future__ import annotations

import gc

import torch

torch.set_num_threads(1)  # the tensors are small: a second thread would only wait
gc.freeze()  # every epoch begins with a collection, which need not look at what was imported
