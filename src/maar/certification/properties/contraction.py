"""Boxes without the parts in which a condition cannot be met.

Where a row is at least a . x + c on a box, with the least value L there, it is at least L + |a_i| d
at a distance d from the end at which a_i x_i is least. A point that meets the condition has no row
above 0, so that d <= -L / |a_i|: the box may be cut off there, for every row and every input. On
formulas of logic this is unit propagation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from maar.domains.backward import Backward, specification
from maar.domains.bound import Corners, Pair
from maar.domains.graph import Graph
from maar.domains.interval import Boxes
from maar.domains.relax import lower_slope, upper_line
from maar.domains.rounding import gamma
from maar.domains.rows import Rows

# What is cut off must be worth it: a part of the input's width.
WORTH = 0.05
# The rounding of the quotient and of the new end.
ROUNDING = 1e-9


@torch.no_grad()
def contracted(
    graph: Graph, lb: Tensor, ub: Tensor, C: Tensor, b: Tensor, pre: Sequence[Pair]
) -> tuple[Tensor, Tensor, Tensor]:
    """Smaller boxes [B, inputs] with all points at which C y <= b; and L of each row, [B, rows].

    `pre` has bounds of every ReLU's input over the boxes. L is the larger one of two bounds: with
    CROWN's lower slopes, and with slopes of 0.
    """
    shape = graph.shapes[0]
    boxes = Boxes.start(graph, Corners(lb.view(-1, *shape), ub.view(-1, *shape)), rounding=True)
    for i, pair in zip(graph.relus, pre, strict=True):
        boxes.advance(i)
        boxes.refine(graph.nodes[i].inputs[0], pair)
    boxes.advance(len(graph.nodes))
    count, rows = C.shape[:2]
    low, high = lb.clone(), ub.clone()
    best = torch.full_like(b, -torch.inf)
    for is_flat in (False, True):
        asked = specification(graph, C, count, boxes.lb[0])
        if asked.image is None:
            asked = Rows(asked.A, torch.zeros(len(asked), dtype=torch.long))
        a, least = _lines(boxes, asked, is_flat)
        a, least = a.view(count, rows, -1), least.view(count, rows)
        least = torch.nextafter(least - b, torch.full_like(b, -torch.inf))
        least = torch.where(least.isfinite(), least, -torch.inf)
        best = torch.maximum(best, least)
        reach = (-least).clamp(min=0)[..., None] / a.abs()
        reach = reach * (1 + ROUNDING) + torch.finfo(reach.dtype).tiny
        reach = torch.where(reach.isnan(), torch.inf, reach)
        up = torch.where(a > 0, reach, torch.inf).amin(1)
        down = torch.where(a < 0, reach, torch.inf).amin(1)
        high = torch.minimum(high, _outward(lb, up, 1))
        low = torch.maximum(low, _outward(ub, -down, -1))
    # (What is empty is closed by L > 0; a box must stay one.)
    is_worth = (high - low) < (1 - WORTH) * (ub - lb)
    is_worth &= low <= high
    return torch.where(is_worth, low, lb), torch.where(is_worth, high, ub), best


def _outward(end: Tensor, step: Tensor, side: int) -> Tensor:
    """End + step, rounded away from `end`."""
    moved = end + step
    return torch.nextafter(moved, torch.full_like(moved, side * torch.inf))


def _lines(boxes: Boxes, rows: Rows, is_flat: bool) -> tuple[Tensor, Tensor]:
    """The coefficients of lines below the rows, and the least values, all rounding taken off."""

    def relu(run: Backward, i: int, rows: Rows) -> Rows:
        source = boxes.graph.nodes[i].inputs[0]
        lb, ub = boxes.lb[source], boxes.ub[source]
        above, intercept = upper_line(lb, ub)
        below = (lb >= 0).to(lb) if is_flat else lower_slope(lb, ub)
        negative = rows.A.clamp(max=0)
        lifted = rows.with_A(negative).dot(intercept)
        run.constant = run.constant + lifted
        A = rows.A.clamp(min=0) * rows.look_up(below) + negative * rows.look_up(above)
        result = rows.gated(A, ub > 0)
        run.error = run.error + gamma((result.terms or 0) + 16, A.dtype) * lifted.abs()
        return result

    run = Backward(boxes, relu)
    at_input = run.run(len(boxes.graph.nodes), rows)
    assert at_input is not None
    at_input = at_input.dense(boxes.graph.shapes[0])
    middle, reach = run.concretise(at_input)
    return at_input.A.flatten(1), middle - reach
