"""Values by the type of their field: what is accepted, what is refused, and in which words."""

import dataclasses
import math
from typing import Annotated, Literal

import pytest

from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.core.settings import (
    Check,
    Count,
    NonNegative,
    Positive,
    Range,
    Settings,
    convert,
    docs,
    parse,
)


def refuse_evil(value):
    if value == "evil":
        raise UsageError("text = 'evil' is evil")


ACCEPTED = [  # type, word on the command line, typed value
    (int, "3", 3),
    (int, "-3", -3),
    (float, "1e-3", 1e-3),
    (float, "2", 2.0),
    (bool, "true", True),
    (bool, "False", False),
    (str, "3", "3"),
    (Eps, "2/255", Eps("2/255")),
    (Count, "0", 0),
    (Literal["adam", "sgd"], "sgd", "sgd"),
    (tuple[Positive, ...], "50,60", (50, 60)),
    (tuple[Positive, ...], "", ()),
    (float | None, "none", None),
    (float | None, "0.5", 0.5),
    (Annotated[str, Check(refuse_evil)], "good", "good"),
]


@pytest.mark.parametrize(("hint", "word", "value"), ACCEPTED)
def test_a_word_and_a_value_give_the_same(hint, word, value):
    assert parse(hint, word) == value
    assert convert(hint, value) == value
    assert type(parse(hint, word)) is type(value)


REFUSED_WORDS = [
    (int, "3.0", "is not a whole number"),
    (int, "three", "is not a whole number"),
    (int, "", "is not a whole number"),
    (float, "fast", "is not a number"),
    (float, "nan", "is not a number"),
    (float, "inf", "is not a number"),
    (bool, "maybe", "is not true or false"),
    (Positive, "0", "must be at least 1"),
    (NonNegative, "-0.5", "must be at least 0"),
    (Annotated[float, Range(above=0, high=1)], "2", "must be above 0 and at most 1"),
    (Literal["adam", "sgd"], "sdg", "did you mean 'sgd'.*accepted: adam, sgd"),
    (tuple[Positive, ...], "50,x", "is not a whole number"),
    (tuple[Positive, ...], "50,0", "must be at least 1"),
]


@pytest.mark.parametrize(("hint", "word", "reason"), REFUSED_WORDS)
def test_a_bad_word_is_refused_with_the_reason(hint, word, reason):
    with pytest.raises(ValueError, match=reason):
        parse(hint, word)


REFUSED_VALUES = [
    (int, 3.0, "is not a whole number"),
    (int, True, "is not a whole number"),
    (int, "3", "is not a whole number"),
    (float, "0.1", "is not a number"),
    (float, False, "is not a number"),
    (float, math.nan, "is not a finite number"),
    (bool, 1, "is not true or false"),
    (str, 3, "is not text in quotes"),
    (tuple[int, ...], 3, "is not a list, each a whole number"),
    (tuple[int, ...], [1, "2"], "is not a whole number"),
    (float | None, "x", "is not a number"),
]


@pytest.mark.parametrize(("hint", "value", "reason"), REFUSED_VALUES)
def test_a_value_of_another_type_is_refused(hint, value, reason):
    with pytest.raises(ValueError, match=reason):
        convert(hint, value)


def test_a_check_speaks_for_itself():
    with pytest.raises(UsageError, match="'evil' is evil"):
        convert(Annotated[str, Check(refuse_evil)], "evil")


@dataclasses.dataclass(frozen=True)
class Inner:
    depth: int = 1


@dataclasses.dataclass(frozen=True)
class Example(Settings):
    """Some settings."""

    steps: Positive = 8
    """how many
    updates"""
    eps: Eps = dataclasses.field(default_factory=lambda: Eps(0.1))
    inner: Inner = dataclasses.field(default_factory=Inner)


def test_settings_are_checked_and_converted_when_made():
    example = Example(eps="1/3")  # pyright: ignore[reportArgumentType]
    assert isinstance(example.eps, Eps)
    assert dataclasses.replace(example, steps=3).eps.text == "1/3"
    with pytest.raises(UsageError, match="steps = 0 must be at least 1"):
        Example(steps=0)
    with pytest.raises(UsageError, match="inner = 3 is not a Inner"):
        Example(inner=3)  # pyright: ignore[reportArgumentType]


def test_the_string_under_a_field_is_its_help():
    assert docs(Example) == {"steps": "how many updates"}
