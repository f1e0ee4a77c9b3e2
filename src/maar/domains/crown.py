"""CROWN: linear bounds carried backwards (Zhang et al. 2018; DeepPoly, Singh et al. 2019).

To bound a . relu(v) from below, a positive coefficient takes the line below the ReLU and a
negative one the line above. The bounds on the ReLUs' inputs come from CROWN itself, only
for neurons that interval bounds leave undecided, or from intervals alone (CROWN-IBP).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from maar.domains.backward import specification
from maar.domains.bound import Bound, Enclosure, Problem, intersect
from maar.domains.graph import one_affine
from maar.domains.interval import Boxes, output
from maar.domains.lines import lower
from maar.domains.reduced.network import TooLarge, reduce
from maar.domains.rows import Rows, neurons


@dataclass(frozen=True)
class Crown(Bound):
    """Backward linear bounds.

    `intermediate`: how the ReLUs' inputs are bounded: "crown", or "interval" for CROWN-IBP.
    `upper`: also bound the outputs from above, at twice the cost; else ub is the interval's.
    `budget`: bytes that the coefficients of one backward pass may take.
    """

    name: ClassVar[str] = "crown"
    intermediate: Literal["crown", "interval"] = "crown"
    rounding: bool = False
    upper: bool = True
    budget: int = 1 << 30

    def enclose(self, problem: Problem) -> Enclosure:
        """Differentiable on a network; on a compiled graph it is fast instead."""
        fixed = problem.graph.constant and self.intermediate == "crown"
        is_box = getattr(problem.box, "dual", None) is None  # the reduced network knows boxes only
        if fixed and is_box and problem.box.lb.device.type == "cpu":
            try:
                return Enclosure.stack([self._one(part) for part in problem.images()])
            except TooLarge:
                pass  # the same bounds by the plain way, which also fits into any memory
        return self._batch(problem)

    def _one(self, problem: Problem) -> Enclosure:
        """One image by its reduced network: on a CPU that beats any batch."""
        reduced, rows = reduce(problem, self.rounding, budget=self.budget, thrifty=True)
        ub = reduced.upper(rows)[None] if self.upper else reduced.interval[1]
        lb, ub = intersect((reduced.lower(rows)[None], ub), reduced.interval)
        return Enclosure(lb, ub, reduced.boxes.pre())

    def _batch(self, problem: Problem) -> Enclosure:
        graph, boxes = problem.graph, self.boxes(problem)
        lb, ub = output(boxes, problem.C)
        rows = specification(graph, problem.C, len(lb), lb)
        value = len(graph.nodes)
        better = self._lower(boxes, value, rows).view_as(lb)
        lb = torch.maximum(lb, better)
        if self.upper:
            better = -self._lower(boxes, value, -rows).view_as(ub)
            ub = torch.minimum(ub, better)
        return Enclosure(lb, ub, boxes.pre())

    def boxes(self, problem: Problem) -> Boxes:
        """The boxes of all values up to the last, tightened where a relaxation needs them."""
        graph = problem.graph
        boxes = Boxes.start(graph, problem.box, self.rounding)
        order = {i: k for k, i in enumerate(graph.relus)}
        for i in sorted([*graph.relus, *graph.smooth]):
            boxes.advance(i)
            if i in order:
                boxes.refine(graph.nodes[i].inputs[0], problem.known_at(order[i]))
            for value in graph.nodes[i].inputs:
                if self.intermediate == "crown" and not one_affine(graph, value):
                    self._tighten(boxes, value, everywhere=i not in order)
        return boxes

    def _tighten(self, boxes: Boxes, value: int, everywhere: bool) -> None:
        """Tighten what a ReLU is given where its sign is open; a smooth operation: everywhere."""
        lb, ub = boxes.lb[value].flatten(1), boxes.ub[value].flatten(1)
        asked = lb < ub if everywhere else (lb < 0) & (ub > 0)
        image, index = asked.nonzero(as_tuple=True)
        if not len(index):
            return
        shape = boxes.graph.shapes[value]
        rows = neurons(shape, index, None if len(lb) == 1 else image, lb.dtype)
        low = self._lower(boxes, value, rows)
        high = -self._lower(boxes, value, -rows)
        old_lb, old_ub = boxes.lb[value], boxes.ub[value]
        lb = lb.index_put((image, index), torch.maximum(lb[image, index], low))
        ub = ub.index_put((image, index), torch.minimum(ub[image, index], high))
        boxes.lb[value], boxes.ub[value] = lb.view_as(old_lb), ub.view_as(old_ub)

    def _lower(self, boxes: Boxes, value: int, rows: Rows) -> Tensor:
        """Lower bounds of the rows, in pieces that keep within the memory budget."""
        widest = max(shape.numel() for shape in boxes.graph.shapes[: value + 1])
        # A layer's coefficients, their copy for the layer below, and the looked-up slopes.
        each = 4 * widest * rows.A.element_size()
        step = max(1, self.budget // each)
        pieces = [
            lower(boxes, value, _piece(rows, start, start + step))
            for start in range(0, len(rows), step)
        ]
        return torch.cat(pieces) if len(pieces) != 1 else pieces[0]


def _piece(rows: Rows, start: int, stop: int) -> Rows:
    if start == 0 and stop >= len(rows):
        return rows
    image = None if rows.image is None else rows.image[start:stop]
    corner = None if rows.corner is None else rows.corner[start:stop]
    return Rows(rows.A[start:stop], image, corner, rows.unit)
