"""An average of the weights over a stage, which is judged and saved in their place.

    ema   after each step    average <- d average + (1 - d) weights, d = min(ema_decay, n / (n + 9))
    swa   after each epoch   average <- mean of the weights after each epoch so far

n counts from `average_from` epochs after the stage's beginning; until then the average is the
weights themselves. The growing d lets an average that has seen little forget quickly. BatchNorm's
statistics are averaged like weights. The weights that are trained never see the average, except
that the next stage begins from it: its frozen prefix, and the region behind that, are then those
which were judged.

How much of the weights goes in is a function of the position alone, so that a checkpoint needs
nothing but the average itself.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from maar.config import TrainConfig


class Average:
    """`net` holds the average; it is a whole network, to be judged as one."""

    def __init__(self, train: TrainConfig, net: nn.Sequential) -> None:
        self.train = train
        self.net = copy.deepcopy(net).requires_grad_(False)

    def after_step(self, net: nn.Module, n: int) -> None:
        """Take the weights in, `n` steps after the average's beginning (negative: before it)."""
        if self.train.average == "ema" and n >= 0:
            self._move(net, 1 - min(self.train.ema_decay, n / (n + 9)))

    def after_epoch(self, net: nn.Module, n: int) -> None:
        """The same, `n` epochs after it."""
        if n < 0:
            self._move(net, 1.0)
        elif self.train.average == "swa":
            self._move(net, 1 / (n + 1))

    @torch.no_grad()
    def _move(self, net: nn.Module, part: float) -> None:
        own = self.net.state_dict()
        for name, value in net.state_dict().items():
            if value.is_floating_point():
                # Leaves equal values as they are: a frozen prefix does not move by one bit.
                own[name].lerp_(value, part)
            else:
                own[name].copy_(value)
