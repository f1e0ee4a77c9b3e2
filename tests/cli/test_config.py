"""`maar config`."""

import pytest

from maar.cli.main import main
from maar.config import config_hash, load


def test_show_prints_toml_that_gives_the_same_hash(tmp_path, capsys):
    assert main(["config", "show", "demo", "--eps", "2/255", "--attack.steps", "5"]) == 0
    text = capsys.readouterr().out
    (tmp_path / "again.toml").write_text(text)
    assert text.startswith(f"# hash {config_hash(load(tmp_path / 'again.toml'))}\n")
    assert 'eps = "2/255"' in text
    assert "steps = 5" in text
    assert main(["config", "show", str(tmp_path / "again.toml")]) == 0
    assert capsys.readouterr().out == text


def test_recipes_lists_them_with_what_they_do(capsys):
    assert main(["config", "recipes"]) == 0
    out = capsys.readouterr().out
    assert "demo" in out
    assert "adversarial training" in out
    assert main(["config", "recipes", "MNIST", "maar"]) == 0
    out = capsys.readouterr().out
    assert "mnist-0.1-maar-cpu" in out
    assert "mnist-0.1-colt-cpu" not in out
    assert "demo" not in out


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["shwo", "demo"], "unknown action 'shwo'; did you mean 'show'?"),
        (["show"], "CONFIG is missing"),
        (["show", "demoo"], "did you mean 'demo'?"),
        (["show", "demo", "--resume"], "unknown flag '--resume'"),
        (["recipes", "sabrr"], "no recipe has 'sabrr' in its name; did you mean 'sabr'?"),
        (["recipes", "demo", "cpu"], "no recipe has 'demo' and 'cpu' in its name"),
    ],
)
def test_mistakes(argv, part, capsys):
    assert main(["config", *argv]) == 2
    said = capsys.readouterr()
    assert part in said.err
    assert said.err.count("\n") == 1


def test_help(capsys):
    assert main(["config", "--help"]) == 0
    assert "maar config show CONFIG" in capsys.readouterr().out
    assert main(["config", "recipes", "--help"]) == 0
    assert main(["config"]) == 2
