"""Exp-IBP (De Palma et al. 2024): CE(z(x'), y)^(1 - alpha) * CE(-lb, y)^alpha.

Both losses are means over the batch, as in the authors' public code. (The paper writes them for one
image; there the weight of the bounds' gradient, (CE(z(x'), y) / CE(-lb, y))^(1 - alpha), would be
nearly nothing where the attack fails.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from maar.methods.base import Batch
from maar.methods.bounded import BoundedOutputs
from maar.methods.expressive import Expressive

# The power of a loss below 1 has no finite slope at 0.
LEAST = 1e-8


@dataclass(frozen=True)
class ExpIBP(Expressive):
    """A straight line between the logarithms of the two losses."""

    name: ClassVar[str] = "exp_ibp"
    paper: ClassVar[str] = (
        "De Palma et al., Expressive losses for verified robustness via convex combinations"
    )
    year: ClassVar[int] = 2024
    idea: ClassVar[str] = "the loss at an adversarial point and that of intervals, as powers"
    score: ClassVar[str] = "robust_accuracy"
    # (3: of means over the batch)
    revision: ClassVar[int] = 3

    def robust(self, batch: Batch, outputs: BoundedOutputs) -> dict[str, Tensor]:
        point, box = (loss.mean().clamp_min(LEAST) for loss in self.losses(batch, outputs))
        return {"worst": point ** (1 - self.alpha) * box**self.alpha}
