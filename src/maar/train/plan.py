"""The whole run laid out beforehand: stages, their epochs, and the global step of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from maar.methods.base import Stage


@dataclass(frozen=True)
class Epoch:
    """One epoch's place in the run."""

    number: int
    """From 0, over all stages."""
    stage: int
    """Index of its stage."""
    in_stage: int
    """From 0, within its stage."""


@dataclass(frozen=True)
class Plan:
    """Stages divided into epochs of equal length."""

    stages: Sequence[Stage]
    steps_per_epoch: int

    @cached_property
    def epochs(self) -> list[Epoch]:
        """Every epoch of the run in its order."""
        places = [(s, e) for s, stage in enumerate(self.stages) for e in range(stage.epochs)]
        return [Epoch(number, *place) for number, place in enumerate(places)]

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.steps_per_epoch * sum(stage.epochs for stage in self.stages)

    def since_stage(self, step: int) -> float:
        """t of the schedules: epochs since the stage of a global step began, with the fraction."""
        epoch = self.epochs[step // self.steps_per_epoch]
        return epoch.in_stage + step % self.steps_per_epoch / self.steps_per_epoch
