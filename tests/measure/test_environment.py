"""What a child reports of this machine, beside what is known of it without one."""

from __future__ import annotations

import pytest
import torch

from bnpbench.execution.children import ask
from bnpbench.execution.messages import Describe
from bnpbench.measure.environment import CUDA_VARIABLES, describe
from bnpbench.measure.known import known


def test_what_is_known_is_what_a_child_reports() -> None:
    """What a child adds is of no consequence to which results are looked for: the rest is equal."""
    here, reported = known(), ask(Describe())
    assert here is not None
    assert here == reported.model_copy(
        update={
            "software": reported.software.model_copy(update={"cudnn": None, "blas": None}),
            "details": here.details.model_copy(update={"affinity": reported.details.affinity}),
        }
    )
    assert here.software.torch is not None


@pytest.mark.regression
def test_a_cudnn_that_torch_was_not_built_with_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch raises then, and every command ended with it."""

    def fails() -> int:
        raise RuntimeError("cuDNN version incompatibility")

    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "version", fails)
    assert describe().software.cudnn is None


def test_variables_that_change_what_a_gpu_does_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CUDA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    set_here = {"CUDA_LAUNCH_BLOCKING": "1", "NVIDIA_TF32_OVERRIDE": "0", "PYTORCH_CUDA_ALLOC_CONF": "backend:native"}
    for name, value in set_here.items():
        monkeypatch.setenv(name, value)
    assert describe().details.variables == set_here
