"""`maar methods`."""

import pytest

from maar.cli.main import main
from maar.methods import METHODS


def test_every_method_with_paper_year_idea_and_knobs(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["methods"]) == 0
    out = capsys.readouterr().out
    for name in METHODS:
        cls = METHODS[name]
        for text in (name, cls.paper, str(cls.year), cls.idea):
            assert text in out
    assert "lam 6.0, weight soft, base colt" in out
    assert "attack 8 steps of 0.25" in out


def test_the_list_fits_a_terminal_and_a_few_screens(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 8 * len(METHODS)


@pytest.mark.parametrize("name", list(METHODS))
def test_one_method_with_the_meaning_of_every_knob(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["methods", name]) == 0
    out = capsys.readouterr().out
    assert METHODS[name].idea in out
    rows = [line for line in out.splitlines() if line.startswith("--")]
    assert all(len(row.split()) > 3 for row in rows), rows  # a flag, a default, and some words
    if name == "maar":
        assert any(
            row.startswith("--lam ") and "weight of the consistency term" in row for row in rows
        )


def test_mistakes(capsys):
    assert main(["methods", "sabrr"]) == 2
    assert "did you mean 'sabr'" in capsys.readouterr().err
