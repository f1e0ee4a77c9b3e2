"""Errors: exit codes, and hints that name the nearest accepted word."""

import pytest

from maar.core.errors import MaarError, RunError, UsageError, nearest, unknown


def test_exit_codes():
    assert UsageError.exit_code == 2
    assert RunError.exit_code == 1
    assert issubclass(UsageError, MaarError)
    assert issubclass(RunError, MaarError)


@pytest.mark.parametrize(
    ("word", "hint"),
    [("colr", "; did you mean 'colt'?"), ("zzz", ""), ("COLT", "; did you mean 'colt'?")],
)
def test_nearest(word, hint):
    assert nearest(word, ["colt", "maar", "ibp"]) == hint


def test_unknown_names_the_word_the_list_and_the_nearest():
    error = unknown("method", "colr", ["maar", "colt"])
    assert str(error) == "unknown method 'colr'; did you mean 'colt'? (accepted: colt, maar)"
    assert isinstance(error, UsageError)


def test_unknown_takes_what_is_not_a_string():
    assert "unknown method 3 (accepted: maar)" in str(unknown("method", 3, ["maar"]))
