"""Bounds on what floating-point arithmetic can add to or take from a bound.

A sum of n products computed in any order, with or without fused multiply-add, differs
from the true one by at most gamma(n) times the sum of the products' absolute values
(Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). docs/soundness.md
has the whole argument.
"""

from __future__ import annotations

import torch
from torch import Tensor

# The slacks are themselves computed in floating point, as sums of non-negative numbers; for
# n < 80,000 in float32 their own relative error is below half a percent.
INFLATE = 1.01


def unit(dtype: torch.dtype) -> float:
    """The unit roundoff u: one rounding changes a number by at most a factor 1 + u."""
    return torch.finfo(dtype).eps / 2


def gamma(n: int, dtype: torch.dtype) -> float:
    """n u / (1 - n u), inflated for the rounding of whatever it multiplies."""
    nu = n * unit(dtype)
    if nu >= 0.5:
        return float("inf")
    return INFLATE * nu / (1 - nu)


def outward(lb: Tensor, ub: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Move bounds to `dtype` (default: their own) and one float outwards.

    The box then contains the real-number one that lb and ub were rounded from.
    """
    dtype = dtype or lb.dtype
    lb, ub = lb.to(dtype), ub.to(dtype)
    low, high = torch.tensor(-torch.inf, dtype=dtype), torch.tensor(torch.inf, dtype=dtype)
    return torch.nextafter(lb, low.to(lb.device)), torch.nextafter(ub, high.to(ub.device))
