"""Training by bounds: what IBP, CROWN-IBP, SABR, TAPS and MTL-IBP have in common.

With lb_k a lower bound of z_y - z_k over a box, the vector (0 for y, -lb_k for k) is at every point
of the box at least as bad as the logits less z_y, so CE of it is an upper bound of the loss there.
eps grows over `ramp` epochs after `warmup` epochs at eps = 0, and Shi's regularisers fade out as it
does: whatever is scheduled follows eps, not time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maar.core.eps import Eps
from maar.core.settings import AboveZero, NonNegative, Unless
from maar.domains.bound import Bound, Box, Enclosure, Pair, margins
from maar.domains.graph import trace
from maar.domains.interval import Interval
from maar.domains.merged import merged
from maar.methods import shi
from maar.methods.base import Batch, Method, Outputs, Stage
from maar.methods.batchnorm import Policy, Statistics
from maar.methods.l1 import l1_norm
from maar.methods.schedules import Ramp, Smooth
from maar.networks import Normalize
from maar.regions import Ball

INTERVAL = Interval()


@dataclass(eq=False)
class BoundedOutputs(Outputs):
    """Outputs with the worst logits of a whole box and the bounds behind them."""

    of_box: Tensor | None = None
    loss_of_box: Tensor | None = None
    """[N], where a bound of the loss itself is known"""
    width: Tensor | None = None
    pre: Sequence[Pair] = ()


@dataclass(frozen=True)
class Bounded(Method):
    """The schedule of eps, Shi's recipe, BatchNorm. Subclasses say what is bounded."""

    # (2: Shi's terms and what is scheduled as their authors have them; SABR's box, TAPS' annealing)
    revision: ClassVar[int] = 2

    eps_factor: AboveZero = 1.0
    """trains for eps times this"""
    warmup: NonNegative = 0.0
    """epochs at eps = 0 before it grows"""
    ramp: NonNegative | None = None
    """epochs over which eps grows from 0 to its value; none: half of those after the warm-up"""
    ramp_shape: Annotated[Literal["smooth", "linear"], Unless("ramp", 0.0)] = "smooth"
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

    def stages(self, net: nn.Sequential, eps: Eps, epochs: int) -> list[Stage]:
        shape = Smooth if self.ramp_shape == "smooth" else Ramp
        ramp = max(0.0, epochs - self.warmup) / 2 if self.ramp is None else self.ramp

        def with_eps(start: float, end: float) -> Ramp:
            return shape(start, end, ramp, self.warmup)

        return [
            Stage(
                "input ball",
                epochs,
                eps=with_eps(0.0, eps * self.eps_factor),
                schedules={"grown": with_eps(0.0, 1.0), **self.numbers(with_eps)},
            )
        ]

    def numbers(self, with_eps: Callable[[float, float], Ramp]) -> dict[str, Ramp]:
        """Further numbers, for subclasses: with_eps(start, end) changes as eps grows."""
        return {}

    def outputs(self, batch: Batch) -> BoundedOutputs:
        passes = Statistics(batch.net, self.batchnorm)
        out = BoundedOutputs(batch)
        out._nat = passes.clean(batch.x)
        if not self._fade(batch):
            self.bound(batch, passes, out)
            return out
        # Widths of so little are lost in bfloat16.
        with torch.autocast(batch.x.device.type, enabled=False):
            tiny = dataclasses.replace(batch, eps=max(batch.eps, shi.MIN_EPS))
            self.bound(tiny, passes, out)
        return out

    def _fade(self, batch: Batch) -> float:
        """The weight of the regularisers at this step."""
        if not self.regularise or self.ramp == self.warmup == 0:
            return 0.0
        return self.regularise * (1 - batch.at.get("grown", 1.0))

    def bound(self, batch: Batch, passes: Statistics, out: BoundedOutputs) -> None:
        """Enter the worst logits, of points or of a box, and the bounds that they come from."""
        raise NotImplementedError

    def enclose(self, batch: Batch, box: Box, out: BoundedOutputs) -> Enclosure:
        """Enter the worst logits of a box by interval bounds."""
        found = enclosed(batch, box)
        out.width, out.pre = mean_width(batch.net, box), found.pre
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
        if self.regularise and not self.ramp == self.warmup == 0:
            fade = self._fade(batch)
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


def mean_width(net: nn.Sequential, box: Box) -> Tensor:
    """Half the width of a box, as the layers see it: in units of the normalised image."""
    width = (box.ub - box.lb) / 2
    first = net[0]
    if isinstance(first, Normalize):
        width = width / first.std.view(-1, *[1] * (width.dim() - 2))
    return width.mean()


def worst_logits(lb: Tensor, y: Tensor) -> Tensor:
    """0 for y, -lb for the others, [N, classes]."""
    classes = lb.shape[1] + 1
    others = torch.arange(classes, device=y.device) != y[:, None]
    return lb.new_zeros(len(lb), classes).masked_scatter(others, -lb)
