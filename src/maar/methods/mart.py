"""MART (Wang et al. 2020): BCE(p(x'), y) + lam * KL(p(x) || p(x')) * (1 - p_y(x)).

    BCE(p, y) = -log p_y - log(1 - max_{k != y} p_k)

x' is PGD's point for the cross-entropy. The second term is MAAR's: it counts where x is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from maar.attacks.pgd import PGD
from maar.core.settings import NonNegative
from maar.methods.base import Batch, Outputs
from maar.methods.consistency import consistency, image_weight
from maar.methods.pgd import PGDTraining

# As in the authors' code: keeps the logarithm of a certain error finite.
FLOOR = 1e-4


@dataclass(frozen=True)
class MART(PGDTraining):
    """A boosted cross-entropy at the worst point, and a term for images that are wrong."""

    name: ClassVar[str] = "mart"
    paper: ClassVar[str] = (
        "Wang et al., Improving adversarial robustness requires revisiting misclassified examples"
    )
    year: ClassVar[int] = 2020
    idea: ClassVar[str] = "boosted cross-entropy at PGD's point + KL(p(x)||p(x')) (1 - p_y)"

    lam: NonNegative = 5.0
    """weight of the KL term"""
    attack: PGD = field(default_factory=lambda: PGD(steps=10, step_size=0.25, restarts=1))
    """the attack in training and on the validation images"""

    def terms(self, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
        [(_, z)] = outputs.worst
        batch.note(robust_accuracy=z.argmax(1) == batch.y)
        weight = image_weight("soft", outputs.nat, batch.y)
        return {
            "boosted": boosted(z, batch.y).mean(),
            "kl": self.lam * (weight * consistency(outputs.nat, z)).mean(),
        }


def boosted(z: Tensor, y: Tensor) -> Tensor:
    """-log p_y - log(1 - max_{k != y} p_k) of each image."""
    rival = z.softmax(1).scatter(1, y[:, None], 0.0).amax(1)
    return F.cross_entropy(z, y, reduction="none") - (1 - rival + FLOOR).log()
