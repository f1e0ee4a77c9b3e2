"""Tighter bounds of single neurons, as COLT has them: a program over each one's receptive field.

Of a neuron in the second convolution only a window of the image and the unstable ReLUs of the first
within that window matter, so its program is tiny, whatever the network.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from maar.certification.milp import choose
from maar.certification.milp.encoding import Encoder
from maar.certification.solvers.solver import Solver
from maar.domains.bound import Pair
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced

# The input of the second ReLU: the first one's bounds are exact already, and deeper neurons see
# too much of the image.
SECOND = 1


def refine(network: Reduced, solver: Solver, seconds: float, k: int = SECOND) -> Sequence[Pair]:
    """Return the bounds on each ReLU's input, those on the unstable neurons of ReLU k refined.

    ReLUs before them are encoded by their triangles: each bound is that of a linear program.
    """
    known = [(lb.clone(), ub.clone()) for lb, ub in network.boxes.pre()]
    if k >= len(network.layers):
        return known
    end = time.monotonic() + seconds
    layer, encoder = network.layers[k], Encoder(network)
    relus = choose.none(network)
    lb, ub = (side.view(-1) for side in known[k])
    for place, row in zip(layer.index.tolist(), _rows(layer.rows), strict=True):
        for sign, side in ((1.0, lb), (-1.0, ub)):
            model = encoder.lowest(_signed(row, sign), relus).model
            answer = solver.solve(model, end - time.monotonic(), stop_above=0.0)
            # min(v) >= bound, or max(v) = -min(-v) <= -bound; never looser than before.
            better = max(float(sign * side[place]), answer.bound)
            side[place] = sign * better
            if better >= 0:
                break  # stable: its other side does not matter
    return known


def _rows(rows: Affine) -> list[Affine]:
    return [rows[torch.tensor([n])] for n in range(len(rows))]


def _signed(row: Affine, sign: float) -> Affine:
    return Affine(sign * row.X, sign * row.Z, sign * row.c, row.e)
