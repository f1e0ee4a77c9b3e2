"""TOML out and in again; the hash."""

import dataclasses
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maar.attacks.pgd import PGD
from maar.config import Config, TrainConfig, config_hash, differing, to_toml
from maar.config.dump import NOT_HASHED, flat, to_table, toml_value
from maar.config.load import build
from maar.methods.pgd import PGDTraining

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXAMPLES = [
    Config(),
    Config(eps="2/255", name='odd "name"', data="npz:my\\\tfile é.npz"),  # pyright: ignore[reportArgumentType]
    Config(method=PGDTraining(ramp=1e-5, attack=PGD(loss="margin", random_start=False))),
    Config(train=TrainConfig(lr_decay_epochs=(5, 7), lr=1e-5, lr_schedule="steps")),
]


@pytest.mark.parametrize("config", EXAMPLES)
def test_fed_back_it_is_the_same(config):
    again = build(tomllib.loads(to_toml(config)))
    assert again == config
    assert config_hash(again) == config_hash(config)
    assert to_toml(again) == to_toml(config)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(text):
    assert tomllib.loads(f"x = {toml_value(text)}")["x"] == text


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1))
def test_any_number_survives(number):
    assert tomllib.loads(f"x = {toml_value(number)}")["x"] == number


def test_the_hash_sees_numbers_not_spellings():
    def hash_of(eps):
        return config_hash(Config(eps=eps))

    assert hash_of("2/255") == hash_of(2 / 255)
    assert hash_of("0.1") == hash_of(0.1)
    assert hash_of("0.10") == hash_of(0.1)
    assert hash_of("2/255") != hash_of("3/255")


def changed(config, path, value):
    """The configuration with one value changed."""
    key, *rest = path
    inner = changed(getattr(config, key), rest, value) if rest else value
    return dataclasses.replace(config, **{key: inner})


OTHER = {  # a value unlike the default for every setting
    ("name",): "x",
    ("data",): "mnist",
    ("valid",): 7,
    ("network",): "mlp",
    ("eps",): 0.3,
    ("seed",): 9,
    ("threads",): 3,
    ("device",): "cpu",
    ("devices",): 2,
    ("method", "ramp"): 2.0,
    ("method", "attack", "steps"): 99,
    ("method", "attack", "restarts"): 2,
    ("method", "attack", "random_start"): False,
    ("method", "attack", "loss"): "dlr",
    ("method", "attack", "targeted"): True,
    ("method", "attack", "early_exit"): True,
    ("method", "attack", "step_size"): 0.01,
    ("method", "attack", "keep"): "best",
    ("train", "epochs"): 99,
    ("train", "batch"): 99,
    ("train", "optimizer"): "sgd",
    ("train", "lr"): 0.5,
    ("train", "lr_schedule"): "steps",
    ("train", "lr_decay"): 0.9,
    ("train", "lr_decay_epochs"): (3,),
    ("train", "lr_decay_from"): 3,
    ("train", "lr_decay_every"): 3,
    ("train", "momentum"): 0.1,
    ("train", "weight_decay"): 0.1,
    ("train", "clip"): 9.0,
    ("train", "average"): "ema",
    ("train", "ema_decay"): 0.5,
    ("train", "average_from"): 3,
    ("train", "precision"): "bf16",
    ("train", "augment"): "none",
    ("train", "latent_images"): 9,
    ("train", "latent_steps"): 9,
    ("train", "test_accuracy"): True,
    ("train", "checkpoint_every"): 9,
    ("train", "checkpoint_minutes"): 9.0,
}


def test_every_setting_is_in_the_list_above():
    assert {*OTHER, ("method", "name")} == set(flat(to_table(Config(method=PGDTraining()))))


@pytest.mark.parametrize("path", OTHER)
def test_every_setting_but_the_named_few_changes_the_hash(path):
    config = Config(method=PGDTraining())
    other = changed(config, path, OTHER[path])
    assert (config_hash(other) == config_hash(config)) == (path in NOT_HASHED)
    assert (differing(config, other) == []) == (path in NOT_HASHED)


def test_another_method_is_a_difference():
    lines = differing(Config(), Config(method=PGDTraining()))
    assert lines[0] == 'method.name: "standard" -> "pgd"'
    assert "method.attack.steps: absent -> 8" in lines


def test_the_hash_does_not_depend_on_the_order_of_keys():
    config = Config(method=PGDTraining())
    reordered = dict(reversed(to_table(config).items()))
    assert config_hash(build(reordered)) == config_hash(config)
