"""COLT (Balunovic and Vechev 2020): layerwise adversarial training within convex relaxations.

    objective = "paper"    CE(z(x), y) + CE(z(x'), y)        as the MAAR paper writes it
    objective = "colt"     CE(z(x'), y)                      as COLT's public code trains

each with the mix of stages and the regularisers of `layerwise`; x' is a worst point of the latent
zonotope of the stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from maar.methods.base import Batch, Outputs
from maar.methods.layerwise import Layerwise


@dataclass(frozen=True)
class COLT(Layerwise):
    """Every point of an image's region is to get the image's label."""

    name: ClassVar[str] = "colt"
    paper: ClassVar[str] = "Balunovic and Vechev, Adversarial training and provable defenses"
    year: ClassVar[int] = 2020
    idea: ClassVar[str] = "adversarial training layer by layer, inside the verifier's zonotope"
    score: ClassVar[str] = "robust_accuracy"

    def label(self, batch: Batch, outputs: Outputs) -> Tensor:
        return batch.y
