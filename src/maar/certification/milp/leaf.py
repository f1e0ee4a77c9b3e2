"""A leaf of branch and bound as a linear program: a proof of the row, or a point against it.

In a leaf every unstable ReLU has a sign, so that the row and each ReLU's input v_i are affine in
the image. The program asks how far the leaf is from a point with row <= 0,

    min t   over   row <= S t,   v_i >= -S_i t (sign 1),   v_i <= S_i t (sign -1),   x in the box,

where S and S_i are the sizes of the row and of each v_i. It always has a solution. A positive
minimum proves that the row is positive on the leaf, or that the leaf is empty; otherwise its point
is one of the leaf, with row <= 0.

The multipliers of the signs, with the row's scaled to 1, are prices for `Reduced.lower_in`, which
computes the bound that counts. The solver is trusted with nothing: bad prices make a weak bound,
never a wrong one.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from maar.certification.solvers import DEFAULT_LP, SOLVERS
from maar.certification.solvers.model import Csr, Model
from maar.certification.solvers.solver import Raw, Solver, Status
from maar.domains.reduced.branching import Leaf
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced

# Where a leaf is empty the row's multiplier is about 0. Prices are then cut to so many times the
# row's size over the minimum: enough to lift the row above zero, wherever it lies.
ENOUGH = 4.0
TINY = float(np.finfo(np.float64).tiny)


class LeafProgram:
    """One row over a reduced network; called with the signs of a leaf."""

    def __init__(self, network: Reduced, row: Affine) -> None:
        self.network, self.row = network, row
        self.solver: Solver = SOLVERS[DEFAULT_LP]()
        none = network.centre.new_zeros(0)
        self.is_on = torch.cat([none, *(layer.lb for layer in network.layers)]) >= 0

    @torch.no_grad()
    def __call__(self, sign: Tensor, seconds: float) -> Leaf | None:
        """Solve the program of a leaf; None if time is up or the solver fails."""
        X, c = self._affine(sign)
        size = (X.abs().sum(1) + c.abs()).clamp_min(TINY)
        X, c = X / size[:, None], c / size
        raw = self._solve(_model(X, c, elastic=1.0), seconds)
        if raw is None:
            return None
        points = [self._image(raw)]
        if raw.objective <= 0:
            # The lowest point of all survives rounding better than one far from every border.
            lowest = self._solve(_model(X, c, elastic=0.0), seconds)
            points += [] if lowest is None else [self._image(lowest)]
        price = torch.zeros_like(sign)
        price[sign != 0] = _prices(raw) * size[0] / size[1:]
        return Leaf(price, torch.stack(points))

    def _affine(self, sign: Tensor) -> tuple[Tensor, Tensor]:
        """The row, and sign * v of all ReLUs that have a sign, over pixels in [-1, 1]."""
        network = self.network
        is_on = (self.is_on | (sign > 0)).to(sign)
        z = network.centre.new_zeros(0, len(network.centre) + 1)
        v = [z]
        for layer in network.layers:
            v.append(self._over_pixels(layer.rows, z))
            start = len(z)
            z = torch.cat([z, is_on[start : start + len(v[-1]), None] * v[-1]])
        signed = (sign[:, None] * torch.cat(v))[sign != 0]
        both = torch.cat([self._over_pixels(self.row, z), signed])
        return both[:, :-1], both[:, -1]

    def _over_pixels(self, rows: Affine, z: Tensor) -> Tensor:
        """Rows over the image and the first z as rows over pixels in [-1, 1] and 1."""
        network = self.network
        own = torch.cat([rows.X * network.radius, (rows.c + rows.X @ network.centre)[:, None]], 1)
        return own + rows.Z @ z[: rows.Z.shape[1]]

    def _solve(self, model: Model, seconds: float) -> Raw | None:
        if seconds <= 0 or not model.is_finite:
            return None
        raw = self.solver.linear(model, seconds)
        return raw if raw.status is Status.OPTIMAL and raw.dual is not None else None

    def _image(self, raw: Raw) -> Tensor:
        assert raw.point is not None
        return self.network.centre + self.network.radius * torch.from_numpy(raw.point[:-1])


def _model(X: Tensor, c: Tensor, elastic: float) -> Model:
    """The program over the pixels and t; `elastic`: how much t widens the signs."""
    A = torch.cat([X, torch.full_like(c, elastic)[:, None]], 1).numpy()
    A[0, -1] = -1.0
    row_lb, row_ub = -c.numpy(), np.full(len(c), np.inf)
    row_lb[0], row_ub[0] = -np.inf, row_lb[0]
    pixels = X.shape[1]
    reach = np.append(np.ones(pixels), 2.0)
    cost = np.append(np.zeros(pixels), 1.0)
    return Model(cost, 0.0, -reach, reach, reach < 0, Csr.of(A), row_lb, row_ub)


def _prices(raw: Raw) -> Tensor:
    """The signs' multipliers in units of the row's."""
    assert raw.dual is not None
    of_row, of_signs = -raw.dual[0], raw.dual[1:].clip(min=0)
    times = 1 / of_row if of_row > 0 else math.inf
    if raw.objective > 0:
        times = min(times, ENOUGH / raw.objective)
    return torch.from_numpy(of_signs * (times if math.isfinite(times) else 0.0))
