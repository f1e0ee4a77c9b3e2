"""The whole run laid out beforehand: stages, their epochs, and the global step of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maar.methods.base import Stage

FOREVER = 1e9
"""Epochs after which every schedule has its last value."""


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

    @property
    def epochs(self) -> int:
        """Epochs of the whole run."""
        return sum(stage.epochs for stage in self.stages)

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.steps_per_epoch * self.epochs

    def unfinished(self) -> list[str]:
        """Stages that end before eps has its value: most likely a ramp longer than was meant."""
        found: list[str] = []
        for stage in self.stages:
            ends, full = stage.eps(stage.epochs), stage.eps(FOREVER)
            if ends < full:
                found.append(
                    f"stage {stage.name!r} ends after {stage.epochs} epochs at eps = {ends:.4g}, "
                    f"before it has grown to {full:.4g}"
                )
        return found

    def epoch(self, number: int) -> Epoch:
        """The place of the epoch with this number, from 0 over all stages."""
        in_stage = number
        for index, stage in enumerate(self.stages):
            if in_stage < stage.epochs:
                return Epoch(number, index, in_stage)
            in_stage -= stage.epochs
        raise IndexError(number)

    def since_stage(self, step: int) -> float:
        """t of the schedules: epochs since the stage of a global step began, with the fraction."""
        number, rest = divmod(step, self.steps_per_epoch)
        return self.epoch(number).in_stage + rest / self.steps_per_epoch
