"""Adversarial training (Madry et al. 2018): CE(z(x'), y) at a point x' found by PGD in the ball."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maar.attacks.pgd import PGD
from maar.core.eps import Eps
from maar.core.settings import NonNegative
from maar.methods.base import Batch, Method, Outputs, Stage
from maar.methods.batchnorm import population_statistics
from maar.methods.schedules import Ramp
from maar.regions import Ball


@dataclass(frozen=True)
class PGDTraining(Method):
    """Cross-entropy at the worst point that the attack finds in the input ball."""

    name: ClassVar[str] = "pgd"
    paper: ClassVar[str] = "Madry et al., Towards deep learning models resistant to attacks"
    year: ClassVar[int] = 2018
    idea: ClassVar[str] = "cross-entropy at the worst point that PGD finds in the ball"
    score: ClassVar[str] = "robust_accuracy"

    ramp: NonNegative = 0.0
    """epochs over which eps grows from 0 to its value"""
    attack: PGD = field(default_factory=lambda: PGD(steps=8, step_size=0.25, restarts=1))
    """the attack in training and on the validation images"""

    def stages(self, net: nn.Sequential, eps: Eps, epochs: int) -> list[Stage]:
        return [Stage("input ball", epochs, eps=Ramp(0.0, eps, self.ramp))]

    def outputs(self, batch: Batch) -> Outputs:
        return Outputs(batch, worst=[(1.0, batch.net(self.adversary(batch)))])

    def terms(self, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
        [(_, z)] = outputs.worst
        batch.note(robust_accuracy=z.argmax(1) == batch.y)
        return {"adversarial": F.cross_entropy(z, batch.y)}

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        x_adv = self.adversary(batch)
        with torch.no_grad():
            robust = batch.net(x_adv).argmax(1) == batch.y
        clean = super().judge(batch)
        return {**clean, "robust_accuracy": robust & clean["accuracy"]}

    def adversary(self, batch: Batch) -> Tensor:
        """The point x' of each image, detached from the weights."""
        region = Ball(batch.x, batch.eps)
        with population_statistics(batch.net), torch.no_grad():
            e = self.attack(batch.net, region, self.climbed(batch), generator=batch.generator)
            return region.point(e)

    def climbed(self, batch: Batch) -> Tensor:
        """Away from what the attack goes: the labels, or probabilities."""
        return batch.y
