"""Help texts fit the terminal, whatever tyro prints."""

import contextlib

import pytest

from maar.cli.main import COMMANDS, main
from maar.core.help import fold


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("as it is\n\n", "as it is\n\n"),
        ("one two three four", "one two\nthree four"),
        ("one two\nthree  four five", "one two\nthree \nfour five"),
        ("unbreakable-as-a-path is", "unbreakable-as-a-path\nis"),
        ("\x1b[1mone\x1b[0m two", "\x1b[1mone\x1b[0m two"),
        ("\x1b[1mone\x1b[0m two three", "\x1b[1mone\x1b[0m two\nthree"),
    ],
)
def test_fold(text, expected):
    assert fold(text, 10) == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_fits_80_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.suppress(SystemExit):
        main([command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert not [line for line in lines if len(line) > 80]
