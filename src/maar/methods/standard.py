"""Standard training: CE(z(x), y). No robustness, the accuracy to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from maar.core.eps import Eps
from maar.methods.base import Batch, Method, Outputs, Stage
from maar.methods.schedules import Constant


@dataclass(frozen=True)
class Standard(Method):
    """Cross-entropy on the images as they are."""

    name: ClassVar[str] = "standard"
    paper: ClassVar[str] = "Rumelhart et al., Learning representations by back-propagating errors"
    year: ClassVar[int] = 1986
    idea: ClassVar[str] = "cross-entropy on the images as they are"
    has_worst: ClassVar[bool] = False

    def stages(self, net: nn.Sequential, eps: Eps, epochs: int) -> list[Stage]:
        return [Stage("images", epochs, eps=Constant(0.0))]

    def terms(self, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
        batch.note(accuracy=outputs.nat.argmax(1) == batch.y)
        return {"cross_entropy": F.cross_entropy(outputs.nat, batch.y)}
