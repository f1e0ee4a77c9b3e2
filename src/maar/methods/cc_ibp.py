"""CC-IBP (De Palma et al. 2024): CE((1 - alpha) * (z(x') - z_y(x')) - alpha * lb, y)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from maar.methods.base import Batch
from maar.methods.bounded import BoundedOutputs
from maar.methods.expressive import Expressive, ahead


@dataclass(frozen=True)
class CCIBP(Expressive):
    """A straight line between the logits, and the loss of that."""

    name: ClassVar[str] = "cc_ibp"
    paper: ClassVar[str] = (
        "De Palma et al., Expressive losses for verified robustness via convex combinations"
    )
    year: ClassVar[int] = 2024
    idea: ClassVar[str] = "cross-entropy between an adversarial point's logits and the intervals'"
    score: ClassVar[str] = "robust_accuracy"

    def robust(self, batch: Batch, outputs: BoundedOutputs) -> dict[str, Tensor]:
        [(_, z)] = outputs.worst
        assert outputs.of_box is not None
        batch.note(robust_accuracy=z.argmax(1) == batch.y)
        between = (1 - self.alpha) * ahead(z, batch.y) + self.alpha * outputs.of_box
        return {"worst": F.cross_entropy(between, batch.y)}
