"""MTL-IBP (De Palma et al. 2024): (1 - alpha) * CE(z(x'), y) + alpha * CE(-lb, y)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from maar.methods.base import Batch
from maar.methods.bounded import BoundedOutputs
from maar.methods.expressive import Expressive


@dataclass(frozen=True)
class MTLIBP(Expressive):
    """A straight line between the two losses."""

    name: ClassVar[str] = "mtl_ibp"
    paper: ClassVar[str] = (
        "De Palma et al., Expressive losses for verified robustness via convex combinations"
    )
    year: ClassVar[int] = 2024
    idea: ClassVar[str] = "a weighted sum of the loss at an adversarial point and that of intervals"
    score: ClassVar[str] = "robust_accuracy"

    def robust(self, batch: Batch, outputs: BoundedOutputs) -> dict[str, Tensor]:
        point, box = self.losses(batch, outputs)
        return {"adversarial": (1 - self.alpha) * point.mean(), "worst": self.alpha * box.mean()}
