"""Settings outside the experiment are the same ones for hashes, reports, comparisons, resumes."""

import dataclasses
import json

import pytest

from maar.config import Config, config_hash, differing, to_toml
from maar.config.dump import flat, to_table
from maar.core.neutral import NEUTRAL
from maar.methods.pgd import PGDTraining
from maar.reporting.collect import collect
from maar.reporting.compare import compare
from maar.reporting.systems import systems
from maar.training.run import open_run

OTHER = {
    "name": "other",
    "threads": 2,
    "device": "cpu",
    "devices": 2,
    "train.latent_images": 5,
    "train.latent_steps": 5,
    "train.test_accuracy": True,
    "train.checkpoint_every": 5,
    "train.checkpoint_minutes": 5.0,
    "train.lr": 0.5,  # not neutral: each check below can fail
}


def changed(config, key):
    *table, name = key.split(".")
    if not table:
        return dataclasses.replace(config, **{name: OTHER[key]})
    train = dataclasses.replace(config.train, **{name: OTHER[key]})
    return dataclasses.replace(config, train=train)


@pytest.fixture
def pair(tmp_path):
    """Make the folders of two certified runs with two seeds that differ in one setting."""

    def make(key):
        config = Config(method=PGDTraining())
        runs = [config, changed(dataclasses.replace(config, seed=1), key)]
        for number, each in enumerate(runs):
            folder = tmp_path / str(number)
            store = folder / "certify" / "eps-1"
            store.mkdir(parents=True)
            (folder / "config.toml").write_text(to_toml(each))
            subject = {"weights": str(number) * 64, "data": "d" * 64, "split": "test", "eps": 0.1}
            facts = {"network": "net", "data": "mnist", "split": "test", "verifiers": ["crown"]}
            facts |= {"key": "k", "format": 2, "images": 10_000}
            manifest = {"subject": subject, **facts}
            (store / "manifest.json").write_text(json.dumps(manifest))
            line = {"index": 0, "label": 7, "verdict": "verified", "by": "crown", "lb": 0.5}
            line |= {"seconds": 0.0, "times": {"crown": 0.0}}
            (store / "verdicts.jsonl").write_text(json.dumps(line) + "\n")
        return tmp_path

    return make


def test_every_neutral_setting_exists_and_is_tried():
    assert set(NEUTRAL) <= {".".join(path) for path in flat(to_table(Config()))}
    assert set(OTHER) == {*NEUTRAL, "train.lr"}


@pytest.mark.parametrize("key", OTHER)
def test_runs_that_differ_in_a_neutral_setting_are_one_experiment(pair, key):
    config = Config(method=PGDTraining())
    is_neutral = key in NEUTRAL
    assert (config_hash(changed(config, key)) == config_hash(config)) == is_neutral
    assert (not differing(config, changed(config, key))) == is_neutral
    folder = pair(key)
    assert (len(systems(collect([folder]).runs)) == 1) == is_neutral
    settings = compare((folder / "0", folder / "1")).settings
    assert ([name for name, *_ in settings] == ["seed"]) == is_neutral


@pytest.mark.parametrize("key", [key for key in NEUTRAL if key != "name"])
def test_a_resumed_run_takes_a_neutral_setting_from_the_new_call(tmp_path, key):
    config = Config(method=PGDTraining())
    with open_run(tmp_path / "run", config, resume=False) as run:
        (run.path / "config.toml").write_text(to_toml(config))
    with open_run(tmp_path / "run", changed(config, key), resume=True) as run:
        assert flat(to_table(run.config))[tuple(key.split("."))] == OTHER[key]
