"""Training by bounds: what IBP, CROWN-IBP, SABR, TAPS and MTL-IBP have in common.

With lb_k a lower bound of z_y - z_k over a box, the vector (0 for y, -lb_k for k) is at every point
of the box at least as bad as the logits less z_y, so CE of it is an upper bound of the loss there.
eps grows over `ramp` epochs after `warmup` epochs at eps = 0, and Shi's regularisers fade out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maar.bounds.bound import Bound, Box, Enclosure, Pair, margins
from maar.bounds.graph import trace
from maar.bounds.interval import Interval
from maar.bounds.merged import merged
from maar.eps import Eps
from maar.methods import shi
from maar.methods.base import Batch, Method, Outputs, Stage
from maar.methods.batchnorm import Policy, Statistics
from maar.methods.l1 import l1_norm
from maar.methods.schedules import Ramp, Smooth
from maar.regions import Ball
from maar.settings import AboveZero, NonNegative

if TYPE_CHECKING:
    from maar.config import TrainConfig

INTERVAL = Interval()


@dataclass(eq=False)
class BoundedOutputs(Outputs):
    """Also the worst logits of a whole box, and what the bounds found on the way."""

    of_box: Tensor | None = None
    loss_of_box: Tensor | None = None
    """[N], where a bound of the loss itself is known"""
    width: Tensor | None = None
    pre: Sequence[Pair] = ()


@dataclass(frozen=True)
class Bounded(Method):
    """The schedule of eps, Shi's recipe, BatchNorm. Subclasses say what is bounded."""

    eps_factor: AboveZero = 1.0
    """trains for eps times this"""
    warmup: NonNegative = 0.0
    """epochs at eps = 0 before it grows"""
    ramp: NonNegative = 0.0
    """epochs over which eps grows from 0 to its value"""
    ramp_shape: Literal["smooth", "linear"] = "smooth"
    """slow at first, or a straight line"""
    init: Literal["shi", "usual"] = "shi"
    """fresh weights: those that keep interval bounds narrow, or PyTorch's"""
    regularise: NonNegative = 0.5
    """weight of Shi's tightness and ReLU terms at eps = 0; they fade out as eps grows"""
    l1: NonNegative = 0.0
    """weight of the L1 norm of the weights"""
    batchnorm: Policy = "clean"
    """whose statistics bounds and worst points use: of clean images, of the last pass, running"""

    def initialise(self, net: nn.Sequential, generator: torch.Generator) -> None:
        if self.init == "shi":
            shi.initialise(net, generator)

    def stages(self, net: nn.Sequential, eps: Eps, train: TrainConfig) -> list[Stage]:
        shape = Smooth if self.ramp_shape == "smooth" else Ramp
        grown = Ramp(0.0, 1.0, self.ramp, self.warmup)
        return [
            Stage(
                "input ball",
                train.epochs,
                eps=shape(0.0, eps * self.eps_factor, self.ramp, self.warmup),
                schedules={"grown": grown, **self.numbers()},
            )
        ]

    def numbers(self) -> dict[str, Ramp]:
        """Further scheduled numbers, for subclasses."""
        return {}

    def outputs(self, batch: Batch) -> BoundedOutputs:
        passes = Statistics(batch.net, self.batchnorm)
        out = BoundedOutputs(batch)
        out._nat = passes.clean(batch.x)
        self.bound(batch, passes, out)
        return out

    def bound(self, batch: Batch, passes: Statistics, out: BoundedOutputs) -> None:
        """Enter the worst logits, of points or of a box, and the bounds that they come from."""
        raise NotImplementedError

    def enclose(self, batch: Batch, box: Box, out: BoundedOutputs) -> Enclosure:
        """Enter the worst logits of a box by interval bounds."""
        found = enclosed(batch, box)
        out.width, out.pre = (box.ub - box.lb).mean() / 2, found.pre
        out.of_box = worst_logits(found.lb, batch.y)
        return found

    def robust(self, batch: Batch, outputs: BoundedOutputs) -> dict[str, Tensor]:
        """The loss proper; the base adds the regularisers."""
        return {"worst": self.worst(batch, outputs)}

    def worst(self, batch: Batch, outputs: BoundedOutputs) -> Tensor:
        """The loss of the box."""
        assert outputs.of_box is not None
        return F.cross_entropy(outputs.of_box, batch.y)

    def terms(self, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
        assert isinstance(outputs, BoundedOutputs)
        terms = self.robust(batch, outputs)
        batch.note(accuracy=outputs.nat.argmax(1) == batch.y)
        for k, (lb, ub) in enumerate(outputs.pre, start=1):
            batch.note(**{f"unstable_relu_{k}": ((lb < 0) & (ub > 0)).flatten(1).sum(1)})
        if self.l1:
            terms["l1"] = self.l1 * l1_norm(batch.net)
        fade = self.regularise * (1 - batch.at.get("grown", 1.0))
        if self.regularise and self.ramp + self.warmup:
            if fade and outputs.width is not None and outputs.pre:
                terms["tightness"] = fade * shi.tightness(outputs.width, outputs.pre)
                terms["balance"] = fade * shi.balance(outputs.pre)
            else:
                terms["tightness"] = terms["balance"] = batch.x.new_zeros(())
        return terms

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        """Accuracy, and the share that interval bounds certify."""
        clean = super().judge(batch)
        with torch.no_grad():
            found = enclosed(batch, Ball(batch.x, batch.eps))
        return {**clean, "certified_accuracy": (found.lb > 0).all(1)}


def enclosed(
    batch: Batch,
    box: Box,
    bound: Bound = INTERVAL,
    known: Sequence[Pair] | None = None,
    C: Tensor | None = None,
) -> Enclosure:
    """Bounds of z_y - z_k over a box, [N, classes - 1], or of the rows C of the logits."""
    if "graph" not in batch.memo:
        batch.memo["graph"] = trace(batch.net, batch.x.shape[1:])
    graph = merged(batch.memo["graph"])
    if C is None:
        C = margins(batch.y, graph.shapes[-1].numel(), batch.x.dtype)
    return bound(graph, box, C, known)


def worst_logits(lb: Tensor, y: Tensor) -> Tensor:
    """0 for y, -lb for the others, [N, classes]."""
    classes = lb.shape[1] + 1
    others = torch.arange(classes, device=y.device) != y[:, None]
    return lb.new_zeros(len(lb), classes).masked_scatter(others, -lb)
