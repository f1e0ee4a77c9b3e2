"""Estimate the cost of a step of a later stage by a trial of it.

A later stage of layerwise training takes several times as long as the first one: the time left for
the whole run cannot be known from the steps that are done. So now and then one step of each later
stage is tried. The trial is of a copy of the network and its chance is its own, so that nothing of
it enters the run.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

from torch import Tensor, nn

from maar.methods.base import Stage
from maar.training.plan import Plan

TrialLoss = Callable[[nn.Sequential, Stage, float], Tensor]
"""The whole loss of some batch, given the network, the stage and the epochs since it began."""

AFTER = 3
"""Steps of an epoch before a trial: a run's first ones are slow, and trials beside them too."""
SHARE = 0.01
"""The part of a run's time that trials may take, but for the first one."""


def freeze(net: nn.Sequential, stage: Stage) -> None:
    """Training mode, and weights that may move, behind the stage's frozen layers alone."""
    net.train()
    for index, layer in enumerate(net):
        layer.train(index >= stage.frozen)  # a frozen BatchNorm keeps its statistics too
        layer.requires_grad_(index >= stage.frozen)


class Rehearsal:
    """Trials of the stages to come, as often as their cost allows."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.took = 0.0
        self.ended = 0.0
        self.failed = False

    def is_due(self, stage: int) -> bool:
        """Whether to try now, in the stage with this index."""
        if stage + 1 == len(self.plan.stages) or self.failed:
            return False
        return not self.ended or time.perf_counter() - self.ended > self.took / SHARE

    def seconds(
        self, net: nn.Sequential, stage: int, loss: TrialLoss
    ) -> tuple[dict[int, float], str]:
        """Return the seconds of a step of each later stage, by index, half way through it.

        Also what to say of a trial that fails: its stage may fail as well, in hours maybe. It ends
        the trials, not the run.
        """
        began = time.perf_counter()
        found: dict[int, float] = {}
        problem = ""
        for number in range(stage + 1, len(self.plan.stages)):
            try:
                found[number] = _seconds(net, self.plan.stages[number], loss)
            except Exception as error:
                self.failed = True
                problem = (
                    f"a trial step of stage {number + 1} failed, so that the stage may fail too "
                    f"({type(error).__name__}: {error})"
                )
                break
        self.ended = time.perf_counter()
        self.took = self.ended - began
        return found, problem


def _seconds(net: nn.Sequential, stage: Stage, loss: TrialLoss) -> float:
    trial = copy.deepcopy(net)
    freeze(trial, stage)
    times: list[float] = []
    for _ in range(2):  # the first one also lays out the layers
        trial.load_state_dict(net.state_dict())  # (with the statistics of BatchNorm)
        trial.zero_grad()
        start = time.perf_counter()
        total = loss(trial, stage, stage.epochs / 2)
        if total.requires_grad:
            total.backward()
        total.item()  # (a GPU is done by then)
        times.append(time.perf_counter() - start)
    return times[-1]
