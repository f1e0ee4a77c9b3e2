"""A leaf of branch and bound as a linear program: a proof of the rows, or a point against them.

In a leaf every unstable ReLU has a sign, so that the rows and each ReLU's input v_i are affine in
the image. The program asks how far the leaf is from a point with every row <= 0,

    min t   over   row_r <= S_r t,  v_i >= -S_i t (sign 1),  v_i <= S_i t (sign -1),  x in the box,

where the S are the sizes of the rows and of each v_i. It always has a solution. A positive
minimum proves that some row is positive everywhere on the leaf, or that the leaf is empty;
otherwise its point is one of the leaf, with no row above 0.

The multipliers of the signs, with those of the rows scaled to a mixture, are prices for
`Reduced.lower_in`, which computes the bound that counts. The solver is trusted with nothing: bad
prices make a weak bound, never a wrong one.
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

# Where a leaf is empty the rows' multipliers are about 0. Prices are then cut to so many times the
# rows' size over the minimum: enough to lift the row above zero, wherever it lies.
ENOUGH = 4.0
TINY = float(np.finfo(np.float64).tiny)


class LeafProgram:
    """Rows over a reduced network; called with the signs of a leaf."""

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
        rows = len(self.row)
        raw = self._solve(_model(X, c, rows, elastic=1.0), seconds)
        if raw is None:
            return None
        points = [self._image(raw)]
        if raw.objective <= 0:
            # The lowest point of all survives rounding better than one far from every border.
            lowest = self._solve(_model(X, c, rows, elastic=0.0), seconds)
            points += [] if lowest is None else [self._image(lowest)]
        price = torch.zeros_like(sign)
        of_rows, of_signs = _prices(raw, rows)
        mix = of_rows / size[:rows]
        price[sign != 0] = of_signs / size[rows:] / mix.sum()
        return Leaf(price, torch.stack(points), mix / mix.sum())

    def _affine(self, sign: Tensor) -> tuple[Tensor, Tensor]:
        """The rows, and sign * v of all ReLUs that have a sign, over pixels in [-1, 1]."""
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


def _model(X: Tensor, c: Tensor, rows: int, elastic: float) -> Model:
    """The program over the pixels and t; `elastic`: how much t widens the signs."""
    A = torch.cat([X, torch.full_like(c, elastic)[:, None]], 1).numpy()
    A[:rows, -1] = -1.0
    row_lb, row_ub = -c.numpy(), np.full(len(c), np.inf)
    row_lb[:rows], row_ub[:rows] = -np.inf, row_lb[:rows].copy()
    pixels = X.shape[1]
    reach = np.append(np.ones(pixels), 2.0)
    cost = np.append(np.zeros(pixels), 1.0)
    return Model(cost, 0.0, -reach, reach, reach < 0, Csr.of(A), row_lb, row_ub)


def _prices(raw: Raw, rows: int) -> tuple[Tensor, Tensor]:
    """The multipliers of the rows, of sum 1, and those of the signs in the same unit."""
    assert raw.dual is not None
    of_rows, of_signs = (-raw.dual[:rows]).clip(min=0), raw.dual[rows:].clip(min=0)
    total = float(of_rows.sum())
    times = 1 / total if total > 0 else math.inf
    of_rows = of_rows * times if math.isfinite(times) else np.full(rows, 1 / rows)
    if raw.objective > 0:
        times = min(times, ENOUGH / raw.objective)
    of_signs = of_signs * (times if math.isfinite(times) else 0.0)
    return torch.from_numpy(of_rows), torch.from_numpy(of_signs)
