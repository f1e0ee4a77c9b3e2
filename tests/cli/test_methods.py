"""`maar methods`."""

from maar.cli.main import main
from maar.methods import METHODS


def test_every_method_with_paper_year_idea_and_knobs(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    assert main(["methods"]) == 0
    out = capsys.readouterr().out
    for name in METHODS:
        cls = METHODS[name]
        for text in (name, cls.paper, str(cls.year), cls.idea):
            assert text in out
    assert "--attack.steps 8" in out


def test_it_takes_no_arguments(capsys):
    assert main(["methods", "--help"]) == 0
    assert main(["methods", "pgd"]) == 2
    assert "unexpected argument 'pgd'" in capsys.readouterr().err
