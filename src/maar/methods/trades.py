"""TRADES (Zhang et al. 2019): CE(z(x), y) + lam * KL(p(x) || p(x')), x' where PGD ends on the KL.

y has no part in x'. Gradients flow through both distributions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from maar.attacks.pgd import PGD
from maar.core.errors import UsageError
from maar.core.settings import NonNegative
from maar.methods.base import Batch, Outputs
from maar.methods.consistency import consistency
from maar.methods.pgd import PGDTraining

# What an attack that has no label cannot do otherwise.
PLAIN = {
    "restarts": 1,
    "keep": "last",
    "loss": "cross_entropy",
    "targeted": False,
    "early_exit": False,
}


@dataclass(frozen=True)
class TRADES(PGDTraining):
    """Natural cross-entropy, and a term that keeps the outputs stable on the ball."""

    name: ClassVar[str] = "trades"
    paper: ClassVar[str] = (
        "Zhang et al., Theoretically principled trade-off between robustness and accuracy"
    )
    year: ClassVar[int] = 2019
    idea: ClassVar[str] = "natural cross-entropy + KL(p(x)||p(x')) at PGD's point for the KL"

    lam: NonNegative = 6.0
    """weight of the KL term"""
    attack: PGD = field(default_factory=lambda: PGD(steps=10, step_size=0.25, restarts=1))
    """the attack in training and on the validation images"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, accepted in PLAIN.items():
            if getattr(self.attack, name) != accepted:
                raise UsageError(
                    f"attack.{name} = {_spelt(getattr(self.attack, name))} (accepted: "
                    f"{_spelt(accepted)}: the attack climbs the KL in one run, and its last point "
                    "counts)"
                )
        if not self.attack.random_start:
            raise UsageError(
                "attack.random_start = false (accepted: true: at x itself the KL has no slope)"
            )

    def climbed(self, batch: Batch) -> Tensor:
        return batch.net(batch.x).softmax(1)

    def terms(self, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
        [(_, z)] = outputs.worst
        batch.note(robust_accuracy=z.argmax(1) == batch.y)
        return {
            "natural": F.cross_entropy(outputs.nat, batch.y),
            "kl": self.lam * consistency(outputs.nat, z).mean(),
        }


def _spelt(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
