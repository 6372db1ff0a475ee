"""What the tables of a suite hold."""

from __future__ import annotations

from tests.support.kinds import made


def test_the_shape_of_synthetic_data() -> None:
    shape = made("dataset", {"kind": "synthetic", "shape": (3, 4), "classes": 5, "train": 6, "test": 7}).describe()
    assert (shape.input, shape.classes, shape.train, shape.test) == ((3, 4), 5, 6, 7)
