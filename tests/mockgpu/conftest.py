"""The mock, built once a session."""

from __future__ import annotations

import os

import pytest

from tests.support.mockgpu import MockGpu, unfit


@pytest.fixture(scope="session")
def mockgpu(tmp_path_factory: pytest.TempPathFactory) -> MockGpu:
    """A mock GPU; whatever wants it is skipped where there can be none."""
    if (reason := unfit()) is not None:
        pytest.skip(reason)
    base = tmp_path_factory.getbasetemp()
    return MockGpu.built((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "mockgpu")
