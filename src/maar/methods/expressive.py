"""Losses between an attack's and the interval bounds' (De Palma et al. 2024).

With z' the logits at an adversarial point and -lb the worst logits of the whole ball:

    MTL-IBP   (1 - alpha) * CE(z', y) + alpha * CE(-lb, y)
    CC-IBP    CE((1 - alpha) * (z' - z'_y) - alpha * lb, y)
    Exp-IBP   CE(z', y)^(1 - alpha) * CE(-lb, y)^alpha

alpha = 0 is adversarial training, alpha = 1 is IBP.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from maar.attacks.pgd import PGD
from maar.core.settings import AboveZero, Share
from maar.methods.base import Batch
from maar.methods.batchnorm import Statistics
from maar.methods.bounded import Bounded, BoundedOutputs
from maar.regions import Ball


@dataclass(frozen=True)
class Attacked(Bounded):
    """Bounds and an attack on the same ball."""

    attack: PGD = field(default_factory=lambda: PGD(steps=8, step_size=0.25))
    """finds the adversarial point, in training and on the validation images"""

    def adversary(self, batch: Batch, ball: Ball) -> Tensor:
        """The point x' of each image."""
        e = self.attack(batch.net, ball, batch.y, generator=batch.generator)
        with torch.no_grad():
            return ball.point(e)

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        judged = super().judge(batch)
        x_adv = self.adversary(batch, Ball(batch.x, batch.eps))
        with torch.no_grad():
            robust = batch.net(x_adv).argmax(1) == batch.y
        return {**judged, "robust_accuracy": robust & judged["accuracy"]}


@dataclass(frozen=True)
class Expressive(Attacked):
    """Between the two losses; subclasses say how."""

    alpha: Share = 0.5
    """0: the attack's loss; 1: that of the interval bounds"""
    attack_factor: AboveZero = 1.0
    """the attack goes this many times as far as the bounds, in training"""

    def bound(self, batch: Batch, passes: Statistics, out: BoundedOutputs) -> None:
        ball = Ball(batch.x, batch.eps)
        with passes.fixed(gradient=False):
            x_adv = self.adversary(batch, Ball(batch.x, self.attack_factor * batch.eps))
        out.worst = [(1.0, passes.worst(x_adv))]
        with passes.fixed():
            self.enclose(batch, ball, out)

    def losses(self, batch: Batch, outputs: BoundedOutputs) -> tuple[Tensor, Tensor]:
        """Return the losses at the point and over the box, for each image."""
        [(_, z)], of_box = outputs.worst, outputs.of_box
        assert of_box is not None
        batch.note(robust_accuracy=z.argmax(1) == batch.y)
        losses = (F.cross_entropy(logits, batch.y, reduction="none") for logits in (z, of_box))
        point, box = losses
        return point, box


def ahead(z: Tensor, y: Tensor) -> Tensor:
    """z - z_y, [N, classes]."""
    return z - z.gather(1, y[:, None])
