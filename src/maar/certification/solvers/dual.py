"""A lower bound of a linear program from any dual vector, whoever computed it.

For every x of the model and every y, with d = cost - A' y,

    cost . x = y . A x + d . x  >=  sum_i y_i side_i + sum_j min(d_j lb_j, d_j ub_j),

where side_i is the row's lower side for y_i > 0, else its upper one

(Neumaier and Shcherbina 2004). Columns are bounded, so this is finite, and it is the minimum itself
for an exact optimal y. What rounding can do to it is taken off.
"""

from __future__ import annotations

import numpy as np
import torch

from maar.certification.solvers.model import Model
from maar.domains.rounding import gamma


def safe_bound(model: Model, y: np.ndarray) -> float:
    """A true lower bound of the relaxed model's minimum; -inf or NaN for a useless y."""
    side = np.where(y > 0, model.row_lb, model.row_ub)
    # A side that is not there cannot be priced.
    y = np.where(np.isfinite(side), y, 0.0)
    side = np.where(np.isfinite(side), side, 0.0)
    d = model.cost - model.A.transposed_times(y)
    best = np.minimum(d * model.lb, d * model.ub)
    bound = float((y * side).sum() + best.sum() + model.constant)
    # d_j is a sum of a column's entries; then there are products and one long sum.
    size = np.abs(model.cost) + abs(model.A).transposed_times(np.abs(y))
    reach = np.maximum(np.abs(model.lb), np.abs(model.ub))
    total = (np.abs(y * side)).sum() + size @ reach + abs(model.constant)
    terms = len(model.A) + model.A.columns + 8
    lost = 2 * gamma(terms, torch.float64) * total + np.finfo(np.float64).tiny * terms**2
    return bound - float(lost)
