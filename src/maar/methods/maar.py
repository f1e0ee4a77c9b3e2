"""MAAR: misclassification-aware adversarial regularisation around a base method (eq. obj).

    base + lam * KL(p(x) || p(x')) * w(x)

    weight = "soft"       w = 1 - p_y(x)            the method
    weight = "hard"       w = [h(x) != y]           eq. re
    weight = "uniform"    w = 1                     the ablation

x' is the base's own worst point, already found: the term costs no pass of its own. Gradients flow
through both distributions and through w, as in MART. Where the base mixes several regions, so
does this term, with the same weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn

from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.core.settings import NonNegative, OnlyWith
from maar.methods.base import Batch, Method, Outputs, Stage
from maar.methods.colt import COLT
from maar.methods.consistency import consistency, image_weight


@dataclass(frozen=True)
class MAAR(Method):
    """The base's loss, and a term that keeps the outputs of misclassified images stable."""

    name: ClassVar[str] = "maar"
    paper: ClassVar[str] = (
        "Xu et al., Improving the certified robustness of neural networks via consistency "
        "regularization"
    )
    year: ClassVar[int] = 2020
    own_revision: ClassVar[int] = 1
    """As `revision`, of the consistency term alone."""
    idea: ClassVar[str] = "a base method, and KL(p(x)||p(x')) weighted by how wrong the image is"

    lam: NonNegative = 6.0
    """weight of the consistency term"""
    weight: Annotated[Literal["soft", "hard", "uniform"], OnlyWith("lam")] = "soft"
    """of an image: 1 - p_y; 1 if misclassified, else 0; or 1"""
    base: Method = field(default_factory=COLT)
    """the method that it regularises"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.base, MAAR):
            raise UsageError("base = 'maar': it cannot be its own base (accepted: another method)")
        if not self.base.has_worst:
            raise UsageError(
                f"base = {self.base.name!r}: it has no worst points to be consistent with "
                "(accepted: a method with an attack or bounds)"
            )

    @property
    def score(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The base's."""
        return self.base.score

    @property
    def revision(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One number for the base's and its own: a correction of either makes another training."""
        return self.base.revision + 100 * (self.own_revision - 1)

    def initialise(self, net: nn.Sequential, generator: torch.Generator) -> None:
        self.base.initialise(net, generator)

    def stages(self, net: nn.Sequential, eps: Eps, epochs: int) -> list[Stage]:
        return self.base.stages(net, eps, epochs)

    def outputs(self, batch: Batch) -> Outputs:
        return self.base.outputs(batch)

    def terms(self, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
        terms = self.base.terms(batch, outputs)
        if self.lam:
            weight = image_weight(self.weight, outputs.nat, batch.y)
            parts = [
                share * (weight * consistency(outputs.nat, z)).mean() for share, z in outputs.worst
            ]
            terms["consistency"] = self.lam * torch.stack(parts).sum()
        return terms

    def finish(self, net: nn.Sequential, batches: Iterable[Batch]) -> dict[str, float]:
        return self.base.finish(net, batches)

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        return self.base.judge(batch)
