"""Trials of later stages: they tell what those cost, and leave no trace in the run."""

import dataclasses
import json

import pytest
import torch
from torch import nn

from maar.config import Config, TrainConfig
from maar.methods.base import Stage
from maar.methods.colt import COLT
from maar.methods.schedules import Constant
from maar.training import rehearsal
from maar.training.display import Display, PlainDisplay, Several
from maar.training.plan import Plan
from maar.training.rehearsal import Rehearsal, freeze
from maar.training.trainer import train


class Foreseeing(Display):
    """Keeps what it is told."""

    foresees = True

    def __init__(self) -> None:
        self.told: list[dict[int, float]] = []
        self.warned: list[str] = []

    def outlook(self, seconds):
        self.told.append(dict(seconds))

    def warn(self, line):
        self.warned.append(line)


def colt(images, network) -> Config:
    return Config(
        name="tiny",
        data=images,
        valid=20,
        network=network,
        method=COLT(mix=1.0),
        threads=1,
        train=TrainConfig(epochs=2, batch=16),
    )


def outcome(path):
    """What a run leaves that must not depend on trials."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"], line["images_per_second"]
    return (path / "model.safetensors").read_bytes(), lines


def test_a_run_with_trials_is_the_run_without_them_to_the_bit(
    images, conv_network, tmp_path, monkeypatch
):
    monkeypatch.setattr(rehearsal, "SHARE", float("inf"))  # in every epoch
    config = colt(images, conv_network)
    display = Foreseeing()
    train(config, tmp_path / "tried", display=display)
    train(config, tmp_path / "plain")
    assert outcome(tmp_path / "tried") == outcome(tmp_path / "plain")
    # in the two epochs of the first of two stages
    assert [list(told) for told in display.told] == [[1], [1]]
    assert all(told[1] > 0 for told in display.told)


def test_the_statistics_of_batchnorm_are_left_alone(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsal, "SHARE", float("inf"))
    source = tmp_path / "mine.py"
    source.write_text(
        "from torch import nn\n"
        "from maar.networks import Normalize\n"
        "def net(shape, classes, mean, std):\n"
        "    return nn.Sequential(Normalize(mean, std), nn.Flatten(), nn.Linear(36, 8),\n"
        "        nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, classes))\n"
    )
    config = dataclasses.replace(tiny, network=f"{source}:net")
    train(config, tmp_path / "tried", display=Foreseeing())
    train(config, tmp_path / "plain")
    assert outcome(tmp_path / "tried") == outcome(tmp_path / "plain")


def test_a_display_that_does_not_ask_costs_nothing(tiny, tmp_path, monkeypatch):
    def never(*args):
        raise AssertionError

    monkeypatch.setattr(Rehearsal, "seconds", never)
    train(tiny, tmp_path / "run")
    train(tiny, tmp_path / "several", display=Several(Display(), Display()))
    with pytest.raises(AssertionError):
        train(tiny, tmp_path / "asked", display=Several(Display(), PlainDisplay()))


def test_a_trial_that_fails_is_told_and_ends_the_trials_alone(
    images, conv_network, tmp_path, monkeypatch
):
    tries = []

    def broken(net, stage, loss):
        tries.append(stage.name)
        raise MemoryError("too much")

    monkeypatch.setattr(rehearsal, "_seconds", broken)
    display = Foreseeing()
    train(colt(images, conv_network), tmp_path / "run", display=display)
    assert tries == ["relu 1"]
    assert display.warned == [
        "a trial step of stage 2 failed, so that the stage may fail too (MemoryError: too much)"
    ]


def test_trials_take_their_share_of_the_time_and_no_more(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("maar.training.rehearsal.time.perf_counter", lambda: now[0])
    plan = Plan([Stage(name, 2, Constant(0.1)) for name in ("a", "b", "c")], steps_per_epoch=10)
    trials = Rehearsal(plan)
    net = nn.Sequential(nn.Linear(1, 1))

    def loss(net, stage, t):
        assert t == 1.0  # half way
        now[0] += {"b": 0.5, "c": 2.0}[stage.name]
        return net(torch.ones(1, 1)).sum()

    assert trials.is_due(0)
    assert trials.seconds(net, 0, loss) == ({1: 0.5, 2: 2.0}, "")
    assert not trials.is_due(0)
    now[0] += 499.0  # the trials took 5 s, two of each stage
    assert not trials.is_due(0)
    now[0] += 2.0
    assert trials.is_due(0)
    assert trials.seconds(net, 1, loss) == ({2: 2.0}, "")
    now[0] += 1e6
    assert not trials.is_due(2)  # nothing is to come


def test_freezing():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2)).eval()
    freeze(net, Stage("relu 1", 1, Constant(0.1), frozen=2))
    assert [layer.training for layer in net] == [False, False, True]
    assert [p.requires_grad for p in net.parameters()] == [False] * 4 + [True] * 2
