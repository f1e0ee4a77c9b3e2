"""What a knob may be, and recipes made of chosen values."""

import pytest

from maar.config import config_hash, load
from maar.core.errors import UsageError
from maar.tuning.knobs import parse_knobs, recipe, turned

MAAR = load("cifar10-2_255-maar-cpu")


def test_ranges_and_choices():
    texts = ["lr=1e-4:1e-2:log", "attack.steps=1:4", "weight=soft|uniform", "stage-epochs=9,1|4"]
    lr, steps, weight, epochs = parse_knobs(texts, MAAR)
    assert (lr.low, lr.high, lr.is_log, lr.is_whole) == (1e-4, 1e-2, True, False)
    assert (steps.low, steps.high, steps.is_whole) == (1, 4, True)
    assert [str(knob) for knob in (lr, weight)] == ["lr=0.0001:0.01:log", "weight=soft|uniform"]
    chosen = {"lr": 5e-3, "attack.steps": 3, "weight": "uniform", "stage-epochs": "9,1"}
    config = turned(MAAR, [lr, steps, weight, epochs], chosen)
    assert config.train.lr == 5e-3
    assert config.method.weight == "uniform"
    assert config.method.base.attack.steps == 3
    assert config.method.base.stage_epochs == (9, 1)
    assert config.method.base.stability == MAAR.method.base.stability


def test_the_recipes_own_values_are_found():
    lr, weight, lam = parse_knobs(["lr=1e-4:1e-2", "weight=hard|soft", "lam=7:9"], MAAR)
    assert (lr.of(MAAR), weight.of(MAAR), lam.of(MAAR)) == (2e-3, "soft", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", "is no range"),
        ("lr=1", "is no range"),
        ("lr=1:2:lin", "is no range"),
        ("lr=2:1", "1 is not above 2"),
        ("momentum=0:0.9:log", "a logarithm needs LOW > 0"),
        ("lr=0:1", "0"),
        ("lerning=1:2", "unknown --knob 'lerning'"),
        ("weight=soft:hard", "is not a number"),
        ("weight=soft|hrd", "hrd"),
        ("attack.steps=1.5:2", "1.5"),
        ("data=mnist|cifar10", "unknown --knob"),
        ("eps=1/255|2/255", "unknown --knob"),
        ("valid=100:200", "unknown --knob"),
        ("method=maar|colt", "unknown --knob"),
    ],
)
def test_mistakes_are_told(text, message):
    with pytest.raises(UsageError, match=message.replace("|", r"\|")):
        parse_knobs([text], MAAR)


def test_a_knob_is_given_once():
    with pytest.raises(UsageError, match="given 2 times"):
        parse_knobs(["lr=1e-4:1e-2", "lr=1e-4:1e-3"], MAAR)
    with pytest.raises(UsageError, match="--knob is missing"):
        parse_knobs([], MAAR)


@pytest.mark.parametrize("name", ["cifar10-2_255-maar-cpu", "cifar10-2_255-sabr-long", "smoke"])
def test_a_written_recipe_is_the_same_experiment(name, tmp_path):
    config = load(name)
    path = tmp_path / "mine.toml"
    path.write_text(recipe(config))
    assert config_hash(load(path)) == config_hash(config)
    assert len(path.read_text().splitlines()) < 45
