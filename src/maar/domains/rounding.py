"""Bounds on what floating-point arithmetic can add to or take from a bound.

A sum of n products computed in any order, with or without fused multiply-add, differs
from the true one by at most gamma(n) times the sum of the products' absolute values
(Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). docs/soundness.md
has the whole argument.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from maar.core.errors import UsageError

# The slacks are themselves computed in floating point, as sums of non-negative numbers, whose
# relative error is below one percent (`refuse_inexact` sees to it).
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


def halves(lb: Tensor, ub: Tensor) -> tuple[Tensor, Tensor]:
    """A box's centre and radius.

    Whatever rounding or underflow does to the centre, the radius reaches both ends, up to one
    rounding of its own: a difference never underflows.
    """
    centre = (lb + ub) / 2
    return centre, torch.maximum(ub - centre, centre - lb)


def refuse_inexact(dtype: torch.dtype, device: torch.device, widest: int) -> None:
    """Raise where gamma_n does not describe the arithmetic.

    `widest` is the number of neurons of the widest value: no sum is longer.
    """
    if torch.is_autocast_enabled(device.type):
        raise UsageError("rounding is not accounted for within torch.autocast")
    if dtype not in (torch.float32, torch.float64):
        raise UsageError(
            f"bounds in {dtype} cannot account for rounding (accepted: torch.float32, "
            "torch.float64)"
        )
    if not float(torch.tensor(torch.finfo(torch.float64).tiny, dtype=torch.float64) / 2):
        raise UsageError(
            "rounding is not accounted for where subnormal numbers are flushed to zero: "
            "torch.set_flush_denormal, or a library that was built with -ffast-math"
        )
    if dtype == torch.float64:
        return
    if 2 * widest * unit(dtype) > 0.9 * (INFLATE - 1):
        raise UsageError(
            f"a layer of {widest} neurons is too wide for float32 with rounding; use float64"
        )
    for name, mode in _cpu_modes():
        if mode.lower() not in STRICT:
            raise UsageError(
                f"{name} = {mode} lets float32 be computed in fewer bits, which rounding does not"
                " account for (accepted: not set, or strict IEEE arithmetic)"
            )
    gpu = device.type == "cuda" and torch.backends.cudnn.enabled
    if torch.get_float32_matmul_precision() != "highest" or gpu:
        raise UsageError(
            "float32 with rounding needs torch.set_float32_matmul_precision('highest') and, on a"
            " GPU, torch.backends.cudnn.enabled = False (TF32, Winograd); or use float64"
        )


STRICT = ("", "none", "ieee", "strict")


def _cpu_modes() -> list[tuple[str, str]]:
    """Everything by which somebody may have allowed oneDNN to convolve in bfloat16 or TF32."""
    modes = [
        (name, os.environ.get(name, ""))
        for name in ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
    ]
    for part in ("", "mkldnn", "mkldnn.conv", "mkldnn.matmul"):
        # (torch before 2.9 has none of these)
        found = torch.backends
        for step in part.split(".") if part else []:
            found = getattr(found, step, None)
        path = ".".join(["torch.backends", *([part] if part else []), "fp32_precision"])
        modes.append((path, str(getattr(found, "fp32_precision", ""))))
    return modes


def outward(lb: Tensor, ub: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Move bounds to `dtype` (default: their own) and one float outwards.

    The box then contains the real-number one that lb and ub were rounded from.
    """
    dtype = dtype or lb.dtype
    lb, ub = lb.to(dtype), ub.to(dtype)
    low, high = torch.tensor(-torch.inf, dtype=dtype), torch.tensor(torch.inf, dtype=dtype)
    return torch.nextafter(lb, low.to(lb.device)), torch.nextafter(ub, high.to(ub.device))
