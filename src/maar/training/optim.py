"""Optimiser and learning rate of a stage."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from maar.config import TrainConfig
from maar.methods.base import Stage
from maar.methods.schedules import Constant, Halving, OneCycle, Schedule, Steps


def make_optimizer(train: TrainConfig, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """A fresh optimiser; its learning rate is set before every step."""
    if train.optimizer == "adam":
        # (fused: one pass over the weights, an eighth of the time on a CPU)
        return torch.optim.Adam(weights, train.lr, weight_decay=train.weight_decay, fused=True)
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
    if train.lr_schedule == "halving":
        return Halving(lr, train.lr_decay, train.lr_decay_from, train.lr_decay_every)
    return Constant(lr)


class Descent:
    """The optimiser of one stage, and what stands between a loss and the step."""

    def __init__(self, train: TrainConfig, net: nn.Module) -> None:
        self.clip = train.clip
        self.weights = [weight for weight in net.parameters() if weight.requires_grad]
        self.optimizer = make_optimizer(train, self.weights)

    def backward(self, total: Tensor) -> list[Tensor]:
        """The gradients of all weights, zeros where the loss does not depend on one."""
        self.optimizer.zero_grad()
        total.backward()
        for weight in self.weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        return [weight.grad for weight in self.weights if weight.grad is not None]

    def step(self, lr: float) -> None:
        """Move the weights along the gradients that they have now."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        if self.clip:
            nn.utils.clip_grad_norm_(self.weights, self.clip)
        self.optimizer.step()

    def tensors(self) -> dict[str, Tensor]:
        """Moments and step counts as `<weight>.<name>`; everything else follows from the config."""
        state = self.optimizer.state_dict()["state"]
        return {
            f"{index}.{name}": value
            for index, values in state.items()
            for name, value in values.items()
            if isinstance(value, Tensor)
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            index, _, name = key.partition(".")
            weight = self.weights[int(index)]
            if value.shape == weight.shape:
                # In the weight's own memory layout, as a fresh optimiser makes it: another one
                # gives other rounding.
                value = torch.empty_like(weight).copy_(value)
            state.setdefault(int(index), {})[name] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
