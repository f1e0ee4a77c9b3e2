"""Optimiser and learning rate of a stage."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from maar.config import TrainConfig
from maar.methods.base import Stage
from maar.methods.schedules import Constant, OneCycle, Schedule, Steps


def make_optimizer(train: TrainConfig, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """A fresh optimiser; the trainer sets its learning rate before every step."""
    if train.optimizer == "adam":
        return torch.optim.Adam(weights, lr=train.lr, weight_decay=train.weight_decay)
    return torch.optim.SGD(
        weights, lr=train.lr, momentum=train.momentum, weight_decay=train.weight_decay
    )


def lr_schedule(train: TrainConfig, stage: Stage) -> Schedule:
    """The learning rate as a function of the epochs since the stage began."""
    lr = train.lr * stage.lr_scale
    if train.lr_schedule == "one_cycle":
        return OneCycle(lr, stage.epochs)
    if train.lr_schedule == "steps":
        return Steps(lr, train.lr_decay, tuple(map(float, train.lr_decay_epochs)))
    return Constant(lr)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Moments and step counts as `<parameter>.<name>`; everything else follows from the config."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": value
        for index, values in state.items()
        for name, value in values.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value.clone()
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
