"""A mixed-integer model in the units that solvers' tolerances are meant for.

A solver takes two numbers for equal that differ by less than 1e-9: it fixes a column that is
narrower, drops an entry that is smaller, and misses a row by as much. On a pixel of width 1e-12
that the margin multiplies by 4,000 this made a bound too high by 2e-9 (measured, with SCIP and
with HiGHS). So continuous columns become x = lb + width t with t in [0, 1], every row and the cost
are divided by their largest entry, and each row is wider by SLACK than the model needs: what a
solver may do within its tolerance then loses none of the model's points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from maar.certification.solvers.model import Csr, Model
from maar.domains.rounding import gamma

# Rows are wider by this than the model needs: ten times what solvers are asked for.
SLACK = 1e-8
# Solvers drop entries up to 1e-9 without a word. We do it first, and account for it.
DROPPED = 2e-9


@dataclass(frozen=True, eq=False)
class Scaled:
    """`model` has a minimum of at most the original one's, divided by `unit`."""

    model: Model
    unit: float
    offset: np.ndarray
    width: np.ndarray

    def point(self, t: np.ndarray | None) -> np.ndarray | None:
        """A point of the scaled model as one of the original."""
        return None if t is None else self.offset + self.width * t


def scaled(model: Model) -> Scaled:
    """Every point of `model` has its t in the result, where its cost is no higher."""
    offset = np.where(model.integral, 0.0, model.lb)
    width = np.where(model.integral, 1.0, np.nextafter(model.ub - model.lb, np.inf))
    lb, ub = np.where(model.integral, model.lb, 0.0), np.where(model.integral, model.ub, 1.0)
    reach = np.maximum(np.abs(lb), np.abs(ub))
    # No entry of these models is rounded more often than a sum over the columns has terms.
    lost = gamma(model.A.columns + 16, torch.float64)
    size = np.abs(offset) + width * reach

    entries = model.A.value * width[model.A.index]
    row_of_each, rows = model.A.row_of_each(), len(model.A)
    largest = np.zeros(rows)
    np.maximum.at(largest, row_of_each, np.abs(entries))
    unit = _power(largest)
    entries = entries / unit[row_of_each]
    tiny = np.abs(entries) <= DROPPED
    dropped = _sums(row_of_each, np.abs(entries) * reach[model.A.index] * tiny, rows)
    shift = _sums(row_of_each, model.A.value * offset[model.A.index], rows)
    sizes = _sums(row_of_each, np.abs(model.A.value) * size[model.A.index], rows)
    more = 1.01 * dropped + SLACK

    def side(old: np.ndarray, sign: float) -> np.ndarray:
        error = lost * (sizes + np.abs(old)) + np.finfo(np.float64).tiny
        return (old - shift + sign * error) / unit + sign * more

    cost = model.cost * width
    whole = float(_power(np.abs(cost).max(initial=0.0, keepdims=True))[0])
    cost = cost / whole
    is_tiny = np.abs(cost) <= DROPPED
    left_out = 1.01 * float((np.abs(cost) * is_tiny) @ reach)
    error = lost * (float(np.abs(model.cost) @ size) + abs(model.constant))
    constant = model.constant + float(model.cost @ offset) - error - np.finfo(np.float64).tiny
    return Scaled(
        Model(
            np.where(is_tiny, 0.0, cost),
            constant / whole - left_out,
            lb,
            ub,
            model.integral,
            _kept(model.A, entries, ~tiny),
            side(model.row_lb, -1.0),
            side(model.row_ub, 1.0),
        ),
        whole,
        offset,
        width,
    )


def _power(largest: np.ndarray) -> np.ndarray:
    """A power of two near each number, which divides without rounding; 1 for (nearly) zero."""
    _, exponent = np.frexp(np.where(largest > 1e-200, largest, 1.0))
    return np.ldexp(1.0, exponent)


def _sums(row_of_each: np.ndarray, values: np.ndarray, rows: int) -> np.ndarray:
    return np.bincount(row_of_each, weights=values, minlength=rows)


def _kept(A: Csr, entries: np.ndarray, keep: np.ndarray) -> Csr:
    start = np.concatenate([[0], np.cumsum(keep)])[A.start]
    return Csr(start.astype(np.int64), A.index[keep], entries[keep], A.columns)
