"""Radii as people write them, and the one-line errors for what cannot be a radius."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maar.core.eps import Eps
from maar.core.errors import UsageError


@pytest.mark.parametrize(
    ("written", "number", "text"),
    [
        ("2/255", 2 / 255, "2/255"),
        (" 8 / 255 ", 8 / 255, "8 / 255"),
        ("0.5/255", 0.5 / 255, "0.5/255"),
        ("0.1", 0.1, "0.1"),
        ("1e-3", 0.001, "1e-3"),
        (0.1, 0.1, "0.1"),
        (2 / 255, 2 / 255, "2/255"),
        (0, 0.0, "0.0"),
        (1, 1.0, "1.0"),
        ("255/255", 1.0, "255/255"),
    ],
)
def test_accepted(written, number, text):
    eps = Eps(written)
    assert eps == number
    assert str(eps) == text


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("8/0", "divides by zero"),
        ("-1", "is not a radius"),
        ("-2/255", "is not a radius"),
        ("2", "did you mean 2/255?"),
        (8, "did you mean 8/255?"),
        ("300", "larger than the whole pixel range"),
        ("", "is not a number"),
        ("/255", "is not a number"),
        ("2/", "is not a number"),
        ("1/4/3", "is not a number"),
        ("two", "is not a number"),
        ("nan", "is not a number"),
        ("inf", "is not a number"),
        ("1/inf", "is not a number"),
        ("1e999999999/2", "is not a number"),
        (float("nan"), "is not a radius"),
        (True, "is not a number"),
        (None, "is not a number"),
        ([0.1], "is not a number"),
    ],
)
def test_refused_with_the_value_and_what_is_accepted(written, reason):
    with pytest.raises(UsageError) as caught:
        Eps(written)
    message = str(caught.value)
    assert reason in message
    assert repr(written) in message
    assert "2/255" in message
    assert "\n" not in message


@given(st.floats(0, 1))
def test_the_spelling_leads_back_to_the_number(value):
    eps = Eps(value)
    assert Eps(str(eps)) == value
    assert pickle.loads(pickle.dumps(eps)) == value


@given(st.integers(1, 254))
def test_a_quotient_by_255_is_spelt_as_one(k):
    assert str(Eps(k / 255)) in (f"{k}/255", repr(k / 255))
    assert Eps(f"{k}/255") == k / 255


def test_pickling_keeps_the_spelling():
    assert str(pickle.loads(pickle.dumps(Eps("4/510")))) == "4/510"


@pytest.mark.parametrize("text", ["1e-400", "1e-323/255", "0.0001E-999"])
def test_a_radius_that_float64_cannot_tell_from_zero_is_refused(text):
    with pytest.raises(UsageError, match="too small for float64"):
        Eps(text)


@pytest.mark.parametrize("text", ["0", "0.0", "0e5", "0/255"])
def test_zero_is_a_radius(text):
    assert Eps(text) == 0
