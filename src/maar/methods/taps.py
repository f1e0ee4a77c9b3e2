"""TAPS (Mao et al. 2023): interval bounds through the first layers, an attack through the rest.

Intervals enclose the activations behind a ReLU in a box; for every class k an attack looks there
for the largest z_k - z_y, m_k. With L_TAPS = CE(m, y) and L_IBP that of interval bounds to the end,

    L = L_TAPS * L_IBP                                     both means over the batch

whose two gradients are weighted `weight` to 1. (The paper writes the product for one image; its
public code, which made the published numbers, multiplies the means: image by image, those that are
proved already would hardly be learnt from any more.) From the point z that an attack ends at,
gradients pass into the box by a connector: into the lower end as
max(0, 1 - (z - lb) / (c (ub - lb))), into the upper end likewise, c = `reach`; half into each end
of a box that has no width. As its authors train it, the method begins when eps is grown: until then
the loss is L_IBP (`anneal`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maar.attacks.frozen import frozen
from maar.attacks.pgd import PGD
from maar.attacks.rows import Best, Rows
from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.core.settings import AboveZero, Count, OnlyWith, Range
from maar.domains.bound import Box, Corners, margins
from maar.domains.graph import Graph, trace
from maar.domains.interval import Interval
from maar.methods.base import Batch, Stage
from maar.methods.batchnorm import Statistics
from maar.methods.bounded import Bounded, BoundedOutputs, mean_width, worst_logits
from maar.networks import relu_indices
from maar.regions import Ball, Errors, LatentBox
from maar.regions import Box as RegionBox

FLAT = 1e-5


@dataclass(frozen=True)
class TAPS(Bounded):
    """A product of the latent attack's loss and of IBP's."""

    name: ClassVar[str] = "taps"
    paper: ClassVar[str] = "Mao et al., Connecting certified and adversarial training"
    year: ClassVar[int] = 2023
    idea: ClassVar[str] = "intervals through the first layers, an attack in their box for the rest"
    score: ClassVar[str] = "certified_accuracy"
    # (3: the product is that of means, its gradients as they are in the authors' code)
    revision: ClassVar[int] = 3

    suffix: Count = 1
    """ReLU layers behind the box that is attacked; 0: none, which is IBP"""
    weight: Annotated[AboveZero, OnlyWith("suffix")] = 5.0
    """of the attack's gradient, beside 1 for IBP's"""
    reach: Annotated[float, Range(above=0, high=1), OnlyWith("suffix")] = 0.5
    """c of the gradient connector, as a part of the box"""
    anneal: Annotated[bool, OnlyWith("suffix")] = True
    """interval bounds alone while eps grows"""
    latent: Annotated[PGD, OnlyWith("suffix")] = field(
        default_factory=lambda: PGD(steps=8, step_size=0.25, loss="margin")
    )
    """the attack in the box, for each class"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("targeted", "early_exit"):
            if getattr(self.latent, name):
                raise UsageError(
                    f"latent.{name} = true (accepted: false: each class has its run, to the end)"
                )

    def box(self, batch: Batch, passes: Statistics) -> Box:
        """Return the box to enclose: the ball."""
        return Ball(batch.x, batch.eps)

    def bound(self, batch: Batch, passes: Statistics, out: BoundedOutputs) -> None:
        box, at = self.box(batch, passes), self._split(batch.net)
        C = margins(batch.y, out.nat.shape[1], batch.x.dtype)
        with passes.fixed():
            first, second = (_graph(batch, at, part) for part in ("first", "second"))
            front = Interval()(first, box)
            lb, ub = (side.unflatten(1, first.shapes[-1]) for side in (front.lb, front.ub))
            found = Interval()(second, Corners(lb, ub), C)
        out.width, out.pre = mean_width(batch.net, box), (*front.pre, *found.pre)
        out.of_box = worst_logits(found.lb, batch.y)
        out.worst = [(1.0, out.of_box)]
        if self._attacks(batch):
            points = self._points(batch, passes, LatentBox(lb, ub, at), C.shape[1])
            with passes.fixed():
                z = batch.net[at:](points.flatten(0, 1)).unflatten(0, points.shape[:2])
            ahead = (C * z).sum(2)  # z_y - z_k at the point that was found for k
            out.worst = [(1.0, worst_logits(ahead, batch.y))]

    def _attacks(self, batch: Batch) -> bool:
        """Whether it is TAPS at this step, or IBP."""
        return self.suffix > 0 and not (self.anneal and batch.at.get("grown", 1.0) < 1)

    def worst(self, batch: Batch, outputs: BoundedOutputs) -> Tensor:
        if not self._attacks(batch):
            return super().worst(batch, outputs)
        [(_, attacked)], of_box = outputs.worst, outputs.of_box
        assert of_box is not None
        taps, ibp = (F.cross_entropy(z, batch.y) for z in (attacked, of_box))
        weighted = self.weight * taps * ibp.detach() + ibp * taps.detach()
        # (its value is not the product: only its gradient is wanted)
        return weighted - weighted.detach() + (taps * ibp).detach()

    def stages(self, net: nn.Sequential, eps: Eps, epochs: int) -> list[Stage]:
        if self.suffix:
            self._split(net)  # refuses what makes no sense before anything is begun
        return super().stages(net, eps, epochs)

    def _split(self, net: nn.Sequential) -> int:
        relus = relu_indices(net)
        if self.suffix >= len(relus):
            raise UsageError(
                f"suffix = {self.suffix} leaves no ReLU for the intervals (accepted: less than the "
                f"{len(relus)} of the network)"
            )
        return relus[len(relus) - 1 - self.suffix] + 1

    def _points(self, batch: Batch, passes: Statistics, box: LatentBox, others: int) -> Tensor:
        """For each image and other class, the point that the attack finds, connected to the box."""
        images = torch.arange(len(batch.y), device=batch.y.device).repeat_interleave(others)
        classes = torch.arange(others + 1, device=batch.y.device).expand(len(batch.y), -1)
        target = classes[classes != batch.y[:, None]]
        still = LatentBox(box.lb.detach(), box.ub.detach(), box.at).select(images)
        net = batch.net[box.at :]
        with passes.fixed(gradient=False), frozen(net), torch.no_grad():
            points = still.point(self._climb(net, still, batch, images, target))
        return connected(points.unflatten(0, (-1, others)), box, self.reach)

    def _climb(
        self, net: nn.Module, box: RegionBox, batch: Batch, images: Tensor, target: Tensor
    ) -> Errors:
        """Every row is a pair of its own: nothing is compared between classes."""
        attack = self.latent
        several = attack.restarts > 1 or attack.keeps_every_step
        best = Best(box) if several else None
        rows = Rows(
            suffix=net,
            region=box,
            y=batch.y[images],
            target=target,
            loss=attack.loss,
            images=torch.arange(len(images), device=images.device) if several else images,
            best=best,
            every_step=attack.keeps_every_step,
            early_exit=False,
            of_target=True,
        )
        e: Errors = ()
        for _ in range(attack.restarts):
            start = box.random_start(batch.generator) if attack.random_start else box.zero()
            e = attack.run(rows, start)
        return e if best is None else best.e


def connected(points: Tensor, box: Box, reach: float) -> Tensor:
    """The points [N, K, ...] with the connector's gradients into the ends of the box [N, ...]."""
    lb, ub = box.lb.unsqueeze(1), box.ub.unsqueeze(1)
    width = (ub - lb).detach()
    is_flat = width < FLAT
    span = (reach * width).masked_fill(is_flat, 1.0)
    to_lb = (1 - (points - lb.detach()) / span).clamp_min(0).masked_fill(is_flat, 0.5)
    to_ub = (1 - (ub.detach() - points) / span).clamp_min(0).masked_fill(is_flat, 0.5)
    return points + to_lb * (lb - lb.detach()) + to_ub * (ub - ub.detach())


def _graph(batch: Batch, at: int, part: str) -> Graph:
    key = f"{part} part of the layers, split at {at}"
    if key not in batch.memo:
        first = trace(batch.net[:at], batch.x.shape[1:])
        batch.memo[key] = first if part == "first" else trace(batch.net[at:], first.shapes[-1])
    return batch.memo[key]
