"""IBP (Gowal et al. 2018), with the recipe of Shi et al. 2021: CE of the interval bounds.

    kappa * CE(z(x), y) + (1 - kappa) * CE(-lb, y)

lb are interval bounds of z_y - z_k over the ball. kappa falls from `natural_start` to `natural`
while eps grows; Gowal's from 1 to 0.5, others' from 1 to 0, Shi has 0 throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from maar.core.settings import Share
from maar.methods.base import Batch
from maar.methods.batchnorm import Statistics
from maar.methods.bounded import Bounded, BoundedOutputs
from maar.methods.schedules import Ramp
from maar.regions import Ball


@dataclass(frozen=True)
class IBP(Bounded):
    """Cross-entropy of the worst logits that interval bounds allow."""

    name: ClassVar[str] = "ibp"
    paper: ClassVar[str] = (
        "Gowal et al., On the effectiveness of interval bound propagation for training "
        "verifiably robust models"
    )
    year: ClassVar[int] = 2018
    idea: ClassVar[str] = "cross-entropy of interval bounds over the whole ball"
    score: ClassVar[str] = "certified_accuracy"

    natural: Share = 0.0
    """weight of the natural loss once eps is grown"""
    natural_start: Share | None = None
    """its weight as long as eps is 0; none: 1 if `natural` is above 0, else 0"""

    @property
    def _start(self) -> float:
        return float(self.natural > 0) if self.natural_start is None else self.natural_start

    def numbers(self, with_eps: Callable[[float, float], Ramp]) -> dict[str, Ramp]:
        has_natural = self.natural or self._start
        return {"kappa": with_eps(self._start, self.natural)} if has_natural else {}

    def bound(self, batch: Batch, passes: Statistics, out: BoundedOutputs) -> None:
        with passes.fixed():
            self.enclose(batch, Ball(batch.x, batch.eps), out)
        assert out.of_box is not None
        out.worst = [(1.0, out.of_box)]

    def robust(self, batch: Batch, outputs: BoundedOutputs) -> dict[str, Tensor]:
        terms, kappa = super().robust(batch, outputs), batch.at.get("kappa", 0.0)
        if self.natural or self._start:
            terms = {
                "natural": kappa * F.cross_entropy(outputs.nat, batch.y),
                "worst": (1 - kappa) * terms["worst"],
            }
        return terms
