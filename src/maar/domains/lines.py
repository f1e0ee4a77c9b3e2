"""Lower bounds of rows, with every ReLU on the way replaced by a line: CROWN's last step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from maar.domains.backward import Backward
from maar.domains.interval import EXTRA, Boxes
from maar.domains.relax import lower_slope, upper_line
from maar.domains.rounding import gamma
from maar.domains.rows import Rows


def lower(boxes: Boxes, value: int, rows: Rows, slopes: Sequence[Tensor] | None = None) -> Tensor:
    """Lower bounds of rows over `value`, [R]; all ReLU inputs below it must have their boxes.

    `slopes[k]`: other lower slopes than CROWN's for ReLU k, [R, *shape], with dense rows.
    """
    order = {i: k for k, i in enumerate(boxes.graph.relus)}

    def relu(run: Backward, i: int, rows: Rows) -> Rows:
        source = boxes.graph.nodes[i].inputs[0]
        lb, ub = boxes.lb[source], boxes.ub[source]
        above, intercept = upper_line(lb, ub)
        below = rows.look_up(lower_slope(lb, ub))
        if slopes is not None:
            below = torch.where(rows.look_up((lb < 0) & (ub > 0)), slopes[order[i]], below)
        negative = rows.A.clamp(max=0)
        lifted = rows.with_A(negative).dot(intercept)
        run.constant = run.constant + lifted
        A = rows.A.clamp(min=0) * below + negative * rows.look_up(above)
        if not boxes.rounding:
            return rows.with_A(A)
        result = rows.gated(A, ub > 0)
        # All terms of `lifted` have one sign, so its size is the sum of their sizes.
        terms = (result.terms or 0) + EXTRA
        run.error = run.error + gamma(terms, A.dtype) * lifted.abs()
        return result

    run = Backward(boxes, relu)
    at_input = run.run(value, rows)
    assert at_input is not None
    middle, reach = run.concretise(at_input)
    return middle - reach
