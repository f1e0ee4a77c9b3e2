"""SABR (Müller et al. 2023): CE of interval bounds over a small box around an adversarial point.

The box has the radius lam * eps, lies within the ball, and is where the network is weakest: bounds
over it are far tighter than over the ball, and the network is regularised that much less. lam = 1
is IBP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from maar.core.settings import Share
from maar.methods.base import Batch
from maar.methods.batchnorm import Statistics
from maar.methods.bounded import BoundedOutputs
from maar.methods.expressive import Attacked
from maar.regions import Ball, SmallBox


@dataclass(frozen=True)
class SABR(Attacked):
    """Cross-entropy of the worst logits that interval bounds allow on the small box."""

    name: ClassVar[str] = "sabr"
    paper: ClassVar[str] = "Müller et al., Certified training: small boxes are all you need"
    year: ClassVar[int] = 2023
    idea: ClassVar[str] = "interval bounds over a small box around an adversarial point"
    score: ClassVar[str] = "robust_accuracy"

    lam: Share = 0.4
    """radius of the small box, as a part of eps"""

    def bound(self, batch: Batch, passes: Statistics, out: BoundedOutputs) -> None:
        ball = Ball(batch.x, batch.eps)
        with passes.fixed(gradient=False):
            around = self.adversary(batch, ball) if self.lam < 1 else batch.x
        with passes.fixed():
            self.enclose(batch, SmallBox(ball, around, self.lam), out)
        assert out.of_box is not None
        out.worst = [(1.0, out.of_box)]
