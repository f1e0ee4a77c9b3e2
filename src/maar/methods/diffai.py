"""DiffAI (Mirman et al. 2018, 2019): a ramped mix of a point's loss and of a region's.

    (1 - w) * CE(z(x'), y) + w * CE(-lb, y)

lb are bounds of z_y - z_k over a box by the hybrid zonotope or by intervals; x' is where an attack
ends, or x itself. While eps grows, w grows from 0 to `share`, and so does the box by inclusion
sampling: with r from 0 to 1 it has the radius r eps and lies around a random point of the ball of
radius (1 - r) eps, so that at first it is a random point and at last the whole ball.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from maar.attacks.pgd import PGD
from maar.core.settings import Count, NonNegative, OnlyWith, Share, Unless
from maar.domains.bound import Bound
from maar.domains.hybrid_zonotope import HybridZonotope
from maar.domains.interval import Interval
from maar.methods import shi
from maar.methods.base import Batch
from maar.methods.batchnorm import Statistics
from maar.methods.bounded import BoundedOutputs, enclosed, mean_width, worst_logits
from maar.methods.expressive import Attacked
from maar.methods.schedules import Ramp
from maar.regions import Ball, Box


@dataclass(frozen=True)
class DiffAI(Attacked):
    """Part of the loss at a point, part over a box in an abstract domain."""

    name: ClassVar[str] = "diffai"
    paper: ClassVar[str] = (
        "Mirman et al., Differentiable abstract interpretation for provably robust neural networks"
    )
    year: ClassVar[int] = 2018
    idea: ClassVar[str] = "a ramped mix of a point's loss and a hybrid zonotope's"
    score: ClassVar[str] = "certified_accuracy"
    revision: ClassVar[int] = 1  # (the corrections of the family have left it as it was)

    ramp_shape: Annotated[Literal["smooth", "linear"], Unless("ramp", 0.0)] = "linear"
    """slow at first, or a straight line"""
    init: Literal["shi", "usual"] = "usual"
    """fresh weights: those that keep interval bounds narrow, or PyTorch's"""
    regularise: NonNegative = 0.0
    """weight of Shi's tightness and ReLU terms at eps = 0; they fade out as eps grows"""
    domain: Literal["hybrid", "box"] = "hybrid"
    """bounds by the hybrid zonotope, or by intervals alone"""
    error_terms: Annotated[Count, OnlyWith("domain", "hybrid")] = 8
    """error terms of the hybrid zonotope, at the input and behind each ReLU"""
    share: Share = 0.5
    """weight of the region's loss once eps is grown"""
    sampling: bool = True
    """let the box grow from a random point of the ball to the whole ball, as eps grows"""
    point: Literal["attack", "natural"] = "attack"
    """what the rest of the loss is taken at"""
    attack: PGD = field(default_factory=lambda: PGD(steps=3, step_size=0.5))
    """finds the adversarial point, in training and on the validation images"""

    @property
    def abstract(self) -> Bound:
        """The domain of the bounds."""
        return Interval() if self.domain == "box" else HybridZonotope(self.error_terms)

    def numbers(self, with_eps: Callable[[float, float], Ramp]) -> dict[str, Ramp]:
        return {"share": with_eps(0.0, self.share)}

    def bound(self, batch: Batch, passes: Statistics, out: BoundedOutputs) -> None:
        ball, share = Ball(batch.x, batch.eps), batch.at.get("share", self.share)
        at_point = out.nat
        if self.point == "attack":
            with passes.fixed(gradient=False):
                x_adv = self.adversary(batch, ball)
            at_point = passes.worst(x_adv)
        box = self._box(batch, ball)
        with passes.fixed():
            found = enclosed(batch, box, self.abstract)
        out.width, out.pre = mean_width(batch.net, box), found.pre
        out.of_box = worst_logits(found.lb, batch.y)
        out.worst = [(1 - share, at_point), (share, out.of_box)]

    def _box(self, batch: Batch, ball: Ball) -> Box:
        """Return a box of a part of the radius around a random point, clipped to the pixels."""
        part = batch.at.get("grown", 1.0) if self.sampling else 1.0
        if self._fade(batch):
            part = max(part, shi.MIN_EPS / batch.eps)  # a box without width has no tightness
        u = torch.empty(batch.x.shape, device=batch.generator.device)
        u = u.uniform_(-1, 1, generator=batch.generator).to(batch.x)
        centre = ball.x + (1 - part) * ball.eps_out * u
        lb, ub = centre - part * ball.eps_out, centre + part * ball.eps_out
        return Box(lb.clamp(ball.lb, ball.ub), ub.clamp(ball.lb, ball.ub))

    def robust(self, batch: Batch, outputs: BoundedOutputs) -> dict[str, Tensor]:
        [(rest, z), (share, of_box)] = outputs.worst
        batch.note(robust_accuracy=z.argmax(1) == batch.y)
        return {
            "point": rest * F.cross_entropy(z, batch.y),
            "region": share * F.cross_entropy(of_box, batch.y),
        }

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        """As the others, but certified by its own domain."""
        judged = super().judge(batch)
        with torch.no_grad():
            found = enclosed(batch, Ball(batch.x, batch.eps), self.abstract)
        return {**judged, "certified_accuracy": (found.lb > 0).all(1)}
