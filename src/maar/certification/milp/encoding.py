"""Rows of a reduced network as a model.

Of each unstable ReLU, z = max(v, 0) and p = max(-v, 0) are columns. With 0 <= z <= U = ub and
0 <= p <= L = -lb, one row is the layer and the others say how z and p exclude each other:

    z - p - X x - Z z = c  (+- e)                the layer, as exact as its row is
    s z + t p <= max(s U, t L)                   the triangle; s and t are L and U over L + U
    z <= U a,  p <= L (1 - a),  a in {0, 1}      instead of the triangle: the ReLU itself

Every point of the network satisfies these rows exactly, and with SLACK to spare: a solver that
handles them within its tolerance never loses one. docs/solvers.md has the argument.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from maar.certification.solvers.model import Csr, Model
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced
from maar.domains.rounding import INFLATE

# Rows are wider by this than the network needs: ten times what solvers are asked for.
SLACK = 1e-8
# Solvers drop entries up to 1e-9 without a word. We do it first, and account for it.
DROPPED = 2e-9


@dataclass(frozen=True, eq=False)
class Encoded:
    """A model; its first columns are these `pixels`, flat places in the image."""

    model: Model
    pixels: np.ndarray

    def image(self, network: Reduced, point: np.ndarray) -> Tensor:
        """The solver's point as an image, [1, pixels]; what the model is not about is central."""
        x = network.centre.clone()
        x[torch.from_numpy(self.pixels)] = torch.from_numpy(point[: len(self.pixels)])
        return x[None]


class Encoder:
    """Makes models of rows over one network, which it lays out once."""

    def __init__(self, network: Reduced) -> None:
        layers, total = network.layers, network.columns
        none = network.centre.new_zeros(0)
        c, e, lb, ub = (
            torch.cat([none, *parts]).numpy()
            for parts in (
                [layer.rows.c for layer in layers],
                [layer.rows.e for layer in layers],
                [layer.lb for layer in layers],
                [layer.ub for layer in layers],
            )
        )
        rows = [
            torch.cat([layer.rows.X, F.pad(layer.rows.Z, (0, total - layer.rows.Z.shape[1]))], 1)
            for layer in layers
        ]
        self.low, self.high = (
            side[0].flatten().numpy() for side in (network.boxes.lb[0], network.boxes.ub[0])
        )
        self.L, self.U = -lb.clip(max=0), ub.clip(min=0)
        self.reach = np.concatenate([np.maximum(np.abs(self.low), np.abs(self.high)), self.U])
        dense = torch.cat([none.new_zeros(0, len(self.reach)), *rows]).numpy()
        self.layer, dropped = _sparse(dense, self.reach)
        wide = e + INFLATE * dropped + SLACK
        self.layer_lb = np.nextafter(c - wide, -np.inf)
        self.layer_ub = np.nextafter(c + wide, np.inf)

    def lowest(self, row: Affine, exact: Tensor) -> Encoded:
        """The least value of a row, over the pixels and ReLUs that it depends on and no others.

        `exact`, bool, [unstable ReLUs of all layers]: which are encoded as they are.
        """
        if len(row) != 1:
            raise ValueError(f"one row at a time, not {len(row)}")
        pixels, relus = len(self.low), row.Z.shape[1]
        whole = np.concatenate([row.X[0].numpy(), row.Z[0].numpy()])
        cost, lost = _sparse(whole, self.reach[: pixels + relus])
        constant = np.nextafter(float(row.c) - float(row.e) - INFLATE * float(lost), -np.inf)
        z = _needed(cost[pixels:] != 0, self.layer[:relus, pixels : pixels + relus] != 0)
        x = np.flatnonzero((cost[:pixels] != 0) | (self.layer[z, :pixels] != 0).any(0))
        both = np.concatenate([x, pixels + z])
        columns = _Columns(self.low[x], self.high[x], self.L[z], self.U[z], exact.numpy()[z])
        layer = self.layer[np.ix_(z, both)]
        model = columns.model(
            cost[both], float(constant), layer, self.layer_lb[z], self.layer_ub[z]
        )
        return Encoded(model, x)


def _sparse(rows: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows without tiny entries, and the most that these were worth."""
    tiny = np.abs(rows) <= DROPPED
    return np.where(tiny, 0.0, rows), np.where(tiny, np.abs(rows), 0.0) @ reach


def _needed(wanted: np.ndarray, uses: np.ndarray) -> np.ndarray:
    """The ReLUs that are wanted, and those that these depend on; later ones depend on earlier."""
    wanted = wanted.copy()
    for relu in range(len(wanted) - 1, -1, -1):
        if wanted[relu]:
            wanted |= uses[relu]
    return np.flatnonzero(wanted)


@dataclass(frozen=True, eq=False)
class _Columns:
    """The pixels' box, the ReLUs' bounds -L <= v <= U, and which ReLUs are exact."""

    low: np.ndarray
    high: np.ndarray
    L: np.ndarray
    U: np.ndarray
    exact: np.ndarray

    def model(
        self,
        cost: np.ndarray,
        constant: float,
        layer: np.ndarray,
        layer_lb: np.ndarray,
        layer_ub: np.ndarray,
    ) -> Model:
        """`cost` and `layer` (z = layer . [x z] + ...) are over pixels and ReLUs."""
        pixels, count, whole = len(self.low), len(self.L), int(self.exact.sum())
        z = pixels + np.arange(count)
        p, a = z + count, pixels + 2 * count + np.arange(whole)
        width = pixels + 2 * count + whole
        at, out = np.flatnonzero(self.exact), np.flatnonzero(~self.exact)
        L, U, one = self.L, self.U, np.ones(whole)
        span = np.maximum(L + U, np.finfo(np.float64).tiny)
        s, t = L / span, U / span
        above = np.nextafter(np.maximum(s * U, t * L), np.inf)
        dense = np.zeros((count, width))
        dense[:, : pixels + count] = -layer
        dense[np.arange(count), z] += 1  # a ReLU's own z is not in its row
        dense[np.arange(count), p] = -1
        A = Csr.stacked(
            [
                Csr.of(dense),
                Csr.diagonals((z[out], s[out]), (p[out], t[out]), columns=width),
                Csr.diagonals((z[at], one), (a, -U[at]), columns=width),
                Csr.diagonals((p[at], one), (a, L[at]), columns=width),
            ]
        )
        tops = np.concatenate([above[out], np.zeros(whole), L[at]])
        more = np.zeros(count + whole)
        return Model(
            np.concatenate([cost, more]),
            constant,
            np.concatenate([self.low, np.zeros(count), more]),
            np.concatenate([self.high, U, L, one]),
            np.arange(width) >= pixels + 2 * count,
            A,
            np.concatenate([layer_lb, np.full(len(tops), -np.inf)]),
            np.concatenate([layer_ub, np.nextafter(tops + SLACK, np.inf)]),
        )
