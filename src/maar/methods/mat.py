"""MAT, misclassification-aware training (the MAAR paper, eq. 2): COLT with the network's labels.

    CE(z(x), y) + CE(z(x'), h(x)),   h(x) = argmax z(x)

For a correctly classified image h(x) = y and nothing changes. A misclassified one is asked to keep
its wrong answer over its whole region: that is stable, hence provable, and costs accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from maar.methods.base import Batch, Outputs
from maar.methods.layerwise import Layerwise


@dataclass(frozen=True)
class MAT(Layerwise):
    """Every point of an image's region is to get the label that the network gives the image."""

    name: ClassVar[str] = "mat"
    paper: ClassVar[str] = "Xu et al., Improving the certified robustness of networks ..., eq. 2"
    year: ClassVar[int] = 2020
    idea: ClassVar[str] = "COLT, but a misclassified image is to keep the network's own answer"
    score: ClassVar[str] = "robust_accuracy"

    def label(self, batch: Batch, outputs: Outputs) -> Tensor:
        return outputs.nat.argmax(1)
