"""Batch normalization before the activation."""

from __future__ import annotations

import pytest

from tests.support.kinds import made


def test_it_is_batch_normalization_at_another_place() -> None:
    before, behind = made("method", "bn-pre"), made("method", "bn")
    assert (before.stands, behind.stands) == ("pre", "post")
    assert before.model_dump(exclude={"kind"}) == behind.model_dump(exclude={"kind"})
    assert type(before.layer(5, 2, "x")) is type(behind.layer(5, 2, "x"))


def test_it_normalizes_no_layers_input() -> None:
    with pytest.raises(ValueError, match="normalizes no layer's input; take bn"):
        made("method", {"kind": "bn-pre", "input": True})
