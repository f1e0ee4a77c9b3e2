"""STAPS (Mao et al. 2023): TAPS over SABR's small box instead of the ball."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch

from maar.attacks.pgd import PGD
from maar.core.settings import Share, Unless
from maar.domains.bound import Box
from maar.methods.base import Batch
from maar.methods.batchnorm import Statistics
from maar.methods.taps import TAPS
from maar.regions import Ball, SmallBox


@dataclass(frozen=True)
class STAPS(TAPS):
    """TAPS on a box of radius lam * eps around an adversarial point."""

    name: ClassVar[str] = "staps"
    idea: ClassVar[str] = "TAPS over SABR's small box"

    lam: Share = 0.4
    """radius of the small box, as a part of eps; 1 is TAPS"""
    attack: Annotated[PGD, Unless("lam", 1.0)] = field(
        default_factory=lambda: PGD(steps=8, step_size=0.25)
    )
    """finds the point that the box lies around"""

    def box(self, batch: Batch, passes: Statistics) -> Box:
        ball = Ball(batch.x, batch.eps)
        if self.lam == 1:
            return SmallBox(ball, batch.x, self.lam)
        with passes.fixed(gradient=False), torch.no_grad():
            e = self.attack(batch.net, ball, batch.y, generator=batch.generator)
            return SmallBox(ball, e, self.lam)
