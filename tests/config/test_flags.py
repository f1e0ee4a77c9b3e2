"""Flags from the same dataclasses: what they mean, and what they refuse."""

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from maar.attacks.pgd import PGD
from maar.config import Config, config_hash, load
from maar.config.dump import flat, to_table
from maar.config.flags import Extra, flags_of, parse_command
from maar.core.errors import UsageError
from maar.methods import METHODS
from maar.methods.base import Method
from maar.methods.pgd import PGDTraining
from maar.methods.sabr import SABR
from maar.methods.standard import Standard


@dataclass(frozen=True)
class Wrapper(Method):
    """A method around another."""

    name: ClassVar[str] = "wrapper"
    lam: float = 6.0
    """weight of the regulariser"""
    base: Method = field(default_factory=Standard)
    """what it goes on"""


@pytest.fixture(autouse=True)
def wrapper(monkeypatch):
    from maar.core.registry import Registry

    monkeypatch.setitem(METHODS._entries, "wrapper", "")
    get = Registry.__getitem__
    monkeypatch.setattr(
        Registry,
        "__getitem__",
        lambda self, name: Wrapper if name == "wrapper" else get(self, name),
    )


def parsed(*argv):
    return parse_command(argv, prog="maar x", description="", extras=[Extra("resume", "go on")])


def test_flags_go_over_the_file():
    config, own = parsed("pgd", "--eps", "2/255", "--seed=3", "--attack.steps", "4", "--lr", "1")
    recipe = load("pgd")
    assert isinstance(recipe.method, PGDTraining)
    assert str(config.eps) == "2/255"
    assert config.seed == 3
    assert config.train == dataclasses.replace(recipe.train, lr=1.0)
    attack = dataclasses.replace(recipe.method.attack, steps=4)
    assert config.method == dataclasses.replace(recipe.method, attack=attack)
    assert own == {"resume": False, "config": "pgd"}


def test_the_order_of_words_does_not_matter():
    one = parsed("demo", "--seed", "3", "--resume")
    assert parsed("--seed", "3", "demo", "--resume") == one
    assert parsed("--resume", "--seed=3", "demo") == one
    assert parsed("--resume", "--seed=3", "demo")[1]["resume"] is True


def test_underscores_are_as_good_as_hyphens():
    assert parsed("demo", "--weight_decay", "0.5") == parsed("demo", "--weight-decay", "0.5")
    assert parsed("demo", "--attack.step_size", "0.5") == parsed(
        "demo", "--attack.step-size", "0.5"
    )


def test_lists_are_written_with_commas():
    config, _ = parsed("demo", "--lr-schedule", "steps", "--lr-decay-epochs", "5,7")
    assert config.train.lr_decay_epochs == (5, 7)


def test_another_method_comes_with_its_own_knobs():
    config, _ = parsed("demo", "--method", "standard")
    assert config.method == Standard()
    config, _ = parsed("standard", "--method", "pgd", "--attack.steps", "2")
    assert config.method == PGDTraining(attack=PGD(steps=2, step_size=0.25))


def test_the_same_method_keeps_the_knobs_of_the_file():
    assert parsed("pgd", "--method", "pgd")[0].method == load("pgd").method


def test_methods_nest():
    config, _ = parsed(
        "demo", "--method", "wrapper", "--base", "pgd", "--lam", "2", "--attack.steps", "5"
    )
    assert config.method == Wrapper(lam=2.0, base=PGDTraining(attack=PGD(steps=5)))
    config, _ = parsed("demo", "--method=wrapper", "--base=standard")
    assert config.method == Wrapper(base=Standard())


def test_knobs_of_one_name_are_both_in_reach():
    config, _ = parsed(
        "demo", "--method", "wrapper", "--base", "sabr", "--lam", "2", "--base.lam", "0.7"
    )
    assert config.method == Wrapper(lam=2.0, base=SABR(lam=0.7))


def test_a_method_around_that_of_the_file_keeps_its_knobs():
    config, _ = parsed("pgd", "--method", "wrapper", "--base", "pgd", "--lam", "2")
    assert config.method == Wrapper(lam=2.0, base=load("pgd").method)
    assert config.train == load("pgd").train


def test_a_run_is_named_after_its_file_and_the_hash_if_flags_changed_it():
    assert parsed("demo")[0].name == "demo"
    assert parsed("demo", "--threads", "1")[0].name == "demo"
    config, _ = parsed("demo", "--seed", "3")
    assert config.name == f"demo-{config_hash(config)[:6]}"
    assert parsed("demo", "--seed", "3", "--name", "three")[0].name == "three"


MISTAKES = [
    (["--eps", "8/0"], "--eps: eps = '8/0' divides by zero"),
    (["--eps", "-1"], "--eps: eps = '-1' is not a radius"),
    (["--eps=-1"], "--eps: eps = '-1' is not a radius"),
    (["--eps", "2"], r"--eps: eps = '2' is larger .* did you mean 2/255\?"),
    (["--eps"], "--eps needs a value"),
    (["--eps", "--seed", "3"], "--eps( needs a value|: eps = '--seed' is not a number)"),
    (["--method", "colr"], r"--method: unknown method 'colr'.*\(accepted: .*pgd, .*standard"),
    (["--method", "pgf"], r"--method: unknown method 'pgf'; did you mean 'pgd'\?"),
    (["--method", "wrapper", "--base", "pgf"], r"--base: unknown method 'pgf'; did you mean 'pgd'"),
    (["--method", "maar", "--base", "maar"], "--base maar: it cannot be its own base"),
    (["--method", "maar", "--base", "standard"], "base = 'standard': it has no worst points"),
    (["--method", "standard", "--attack.steps", "3"], "unknown flag '--attack.steps'"),
    (["--data", "mnits"], r"--data: unknown data set 'mnits'; did you mean 'mnist'\?"),
    (["--network", "cnn8"], r"--network: unknown network 'cnn8'; did you mean 'cnn\d'\?"),
    (["--epochs", "-3"], "--epochs -3: must be at least 1"),
    (["--batch", "1.5"], "--batch 1.5: is not a whole number"),
    (["--lr", "fast"], "--lr fast: is not a number"),
    (["--lr", "nan"], "--lr nan: is not a number"),
    (["--epoch", "3"], r"unknown flag '--epoch'; did you mean '--epochs'\? \(accepted: --name, "),
    (["--attack.step", "3"], r"unknown flag '--attack.step'; did you mean '--attack.steps'\?"),
    (["--attack.steps", "-1"], "--attack.steps: steps = -1"),
    (["--attack.random-start", "maybe"], "--attack.random-start maybe: is not true or false"),
    (
        ["--attack.restarts", "3", "--attack.random-start", "false"],
        "--attack.restarts, --attack.random-start: restarts = 3 without random_start",
    ),
    (["--optimizer", "sdg"], r"--optimizer sdg: is not accepted; did you mean 'sgd'\?"),
    (["--lr-decay-epochs", "3,x"], "--lr-decay-epochs 3,x: is not a whole number"),
    (["--name", "a/b"], "--name: name = 'a/b' is not a folder name"),
    (["extra"], "unexpected argument 'extra': there is one CONFIG, the rest are flags$"),
    (["--lr-decay-epochs", "3", "5"], r"unexpected argument '5'.* \(a list is one word"),
    (["-x"], "unknown flag '-x'"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_is_one_line(words, message, capsys):
    with pytest.raises(UsageError, match=message) as caught:
        parsed("demo", *words)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr() == ("", "")


def test_config_must_be_given():
    with pytest.raises(UsageError, match=r"CONFIG is missing: maar x CONFIG .*such as demo"):
        parsed("--eps", "0.1")


def test_help_shows_the_flags_of_the_chosen_method_with_effective_values(capsys):
    with pytest.raises(SystemExit) as left:
        parsed("demo", "--method", "wrapper", "--lam", "2", "--help")
    assert left.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--lam NUMBER weight of the regulariser" in text
    assert "--base{" + ",".join(METHODS) + "}" in text.replace(" ", "")  # a long list is wrapped
    assert "--attack.steps" not in text
    assert "CONFIG" in text


def test_every_setting_has_a_flag_of_its_own_and_a_help_text():
    for name in METHODS:
        config = Config(method=METHODS[name]())
        flags = list(flags_of(config))
        assert {flag.path for flag in flags} == set(flat(to_table(config)))
        for flag in flags:
            assert flag.help, flag.name
