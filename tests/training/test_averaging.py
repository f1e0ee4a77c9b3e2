"""Averages of the weights: what they are, and that the trained weights never see them."""

import dataclasses

import pytest
import torch
from torch import nn

from maar.config import TrainConfig
from maar.core.errors import UsageError
from maar.training.averaging import Average
from maar.training.checkpoint import load_weights
from maar.training.trainer import train


def replaced(config, **values):
    """The configuration with settings of its `train` table changed."""
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **values))


def linear(value: float) -> nn.Sequential:
    """A network whose weights are all the same."""
    net = nn.Sequential(nn.Linear(1, 1))
    for weight in net.parameters():
        nn.init.constant_(weight, value)
    return net


def held(average: Average) -> float:
    values = {float(weight) for weight in average.net.parameters()}
    assert len(values) == 1
    return values.pop()


def test_ema_by_hand():
    average = Average(TrainConfig(average="ema", ema_decay=0.15), linear(9.0))
    average.after_step(linear(5.0), -1)  # before its time
    assert held(average) == 9.0
    average.after_step(linear(1.0), 0)  # d = 0: forgets where it began
    assert held(average) == 1.0
    average.after_step(linear(2.0), 1)  # d = 1/10
    assert held(average) == pytest.approx(0.1 * 1 + 0.9 * 2)
    average.after_step(linear(4.0), 2)  # d = min(0.15, 2/11)
    assert held(average) == pytest.approx(0.15 * 1.9 + 0.85 * 4)


def test_swa_is_the_plain_mean():
    average = Average(TrainConfig(average="swa"), linear(9.0))
    average.after_epoch(linear(5.0), -1)
    assert held(average) == 5.0  # before its time: the weights themselves
    for n, value in enumerate((1.0, 2.0, 6.0)):
        average.after_epoch(linear(value), n)
    assert held(average) == pytest.approx(3.0)


def test_swa_of_a_run_is_the_mean_over_its_epochs(tiny_pgd, tmp_path):
    constant = replaced(tiny_pgd, lr_schedule="constant")
    raw = {}
    for epochs in (2, 3):
        train(replaced(constant, epochs=epochs), tmp_path / f"{epochs}")
        raw[epochs], _ = load_weights(tmp_path / f"{epochs}" / "model.safetensors")
    train(replaced(constant, epochs=3, average="swa", average_from=1), tmp_path / "swa")
    mean, _ = load_weights(tmp_path / "swa" / "model.safetensors")
    for key in mean:
        assert torch.allclose(mean[key], (raw[2][key] + raw[3][key]) / 2, atol=1e-7)
    last, _ = load_weights(tmp_path / "swa" / "checkpoints" / "stage-1-last.safetensors")
    assert all(torch.equal(last[key], mean[key]) for key in mean)


@pytest.mark.parametrize("kind", ["ema", "swa"])
def test_the_frozen_prefix_of_an_average_does_not_move_by_one_bit(tiny, tmp_path, kind):
    """The next stage begins from the average: its prefix is the one that was judged."""
    train(replaced(tiny, average=kind, ema_decay=0.9), tmp_path / "run")
    first, _ = load_weights(tmp_path / "run" / "checkpoints" / "stage-1-last.safetensors")
    last, _ = load_weights(tmp_path / "run" / "model.safetensors")
    prefix = [key for key in first if int(key.split(".")[0]) <= 2]
    assert any(key.endswith("weight") for key in prefix)
    assert all(torch.equal(first[key], last[key]) for key in prefix)
    assert not all(torch.equal(first[key], last[key]) for key in first)


def test_an_average_that_never_begins_is_refused(tiny, tmp_path):
    with pytest.raises(UsageError, match=r"average_from = 2 leaves nothing .* the 2 epochs"):
        train(replaced(tiny, average="swa", average_from=2), tmp_path / "run")
