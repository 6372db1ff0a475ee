"""Tables of settings: strict, and known by their kinds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from bnpbench.fields import Keywords, Kinded, Options, Positive, PositiveFloat, default_of, hints, stripped


class Base(Kinded):
    length: Positive = 3
    rate: PositiveFloat


class Own(Base):
    kind: Annotated[Literal["own"], Field(description="of its own")]
    more: Annotated[tuple[int, ...], Field(max_length=2)] = ()


def test_a_kind_has_its_name_and_a_base_has_none() -> None:
    assert (Own.word(), Base.word(), Kinded.word()) == ("own", None, None)


def test_arguments_of_a_function_are_hashable_and_kept_as_they_are() -> None:
    class Made(Kinded):
        kind: Literal["made"]
        options: Keywords = Keywords()

    one = Made.made(options={"width": 3, "sides": (1, 2), "inner": {"a": 1}})
    assert hash(one) == hash(Made.made(options={"sides": (1, 2), "width": 3, "inner": {"a": 1}}))
    assert one.model_dump(mode="json", exclude_defaults=True) == {
        "kind": "made",
        "options": {"width": 3, "sides": [1, 2], "inner": {"a": 1}},
    }
    assert Made.made().model_dump(exclude_defaults=True) == {"kind": "made"}


def test_one_is_made_of_its_options() -> None:
    assert Own.made(rate=0.5) == Own(kind="own", rate=0.5) == Own(kind="own", length=3, rate=0.5, more=())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"rate": 0.5, "lenght": 3}, "lenght"),
        ({"rate": 0.5, "length": 3.0}, "length"),  # never coerced
        ({"rate": 0.5, "length": True}, "length"),
        ({"rate": "0.5"}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"rate": 0.0}, "rate"),
        ({"rate": 0.5, "more": (1, 2, 3)}, "more"),
        ({}, "rate"),
    ],
)
def test_what_is_unknown_coerced_or_out_of_bounds_is_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Own.made(**options)


def test_options_do_not_change() -> None:
    own = Own.made(rate=0.5)
    with pytest.raises(ValueError, match="frozen"):
        own.rate = 0.7  # type: ignore[misc]
    assert {own} == {Own.made(rate=0.5)}


def test_hints_come_in_the_order_of_declaration_with_their_annotations() -> None:
    found = hints(Own)
    assert list(found) == ["kind", "length", "rate", "more"]
    assert stripped(found["kind"]) == Literal["own"]
    assert stripped(found["more"]) == tuple[int, ...]
    assert stripped(Annotated[Annotated[int, 1], 2]) is int
    assert stripped(int) is int


def test_a_field_without_a_default_has_none() -> None:
    assert (default_of(Own, "length"), default_of(Own, "rate"), default_of(Own, "more")) == (3, None, ())


def test_a_table_without_a_kind_is_strict_too() -> None:
    class Plain(Options):
        share: float = 0.0

    with pytest.raises(ValueError, match="share"):
        Plain.model_validate({"share": float("inf")})
