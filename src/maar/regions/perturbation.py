"""Which inputs count as near: a radius in each place, and the range that inputs keep to.

The usual question has one radius everywhere and pixels in [0, 1]; then there is no `Perturbation`.
Any other is bound into the key of its results by `digest`, and lies beside them as arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.regions.ball import Ball

Range = tuple[Any, Any] | None
"""The least and the greatest value, numbers or one for each place; None where there is none."""
PIXELS = (0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Perturbation:
    """Inputs x' with |x'_i - x_i| <= each_i and low_i <= x'_i <= high_i, all arrays [*shape]."""

    each: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def eps(self) -> float:
        """The largest radius of any place."""
        return float(self.each.max())

    @property
    def digest(self) -> str:
        """The hash of all numbers."""
        total = hashlib.sha256()
        for name, array in self.arrays().items():
            total.update(f"{name} {array.shape}\n".encode() + array.astype("<f8").tobytes())
        return total.hexdigest()

    def __str__(self) -> str:
        """For people: how much moves, and which numbers exactly."""
        moving = self.each[self.each > 0]
        size = f"{moving.min():g} to {self.eps:g}" if moving.size else "0"
        size = f"{self.eps:g}" if moving.size and moving.min() == self.eps else size
        places = "every place" if moving.size == self.each.size else f"{moving.size} places"
        return f"eps {size} in {places} ({self.digest[:8]})"

    def arrays(self) -> dict[str, np.ndarray]:
        """The numbers, to be stored."""
        return {"each": self.each, "low": self.low, "high": self.high}

    def ball(self, x: Tensor) -> Ball:
        """The region around a batch."""
        each, low, high = (torch.from_numpy(a)[None].to(x.device) for a in self.arrays().values())
        return Ball(x, each, low, high)

    def at(self, eps: float) -> Perturbation:
        """The same places with another radius, where all that move have one."""
        if not bool(((self.each == 0) | (self.each == self.eps)).all()):
            raise UsageError("eps differs from place to place (accepted: one number, and a mask)")
        return replace(self, each=np.where(self.each > 0, float(eps), 0.0))

    def fault(self, x: np.ndarray, point: np.ndarray) -> str:
        """Return why a point is not among the inputs that count; empty if it is."""
        wide, there = x.astype(np.float64), point.astype(np.float64)
        if not bool(((there >= self.low) & (there <= self.high)).all()):
            return "the point has values outside the range"
        away = np.abs(there - wide)
        # The difference was rounded: up to the next float64 it may be larger. 0 is exact.
        away = np.where(away > 0, np.nextafter(away, np.inf), 0.0)
        if bool((away > self.each).any()):
            worst = int((away - self.each).argmax())
            allowed = self.each.flat[worst]
            return f"the point is {away.flat[worst]:.9g} away in one place, eps is {allowed:.9g}"
        return ""


def perturbation(
    eps: Any, shape: Sequence[int], span: Range = PIXELS, mask: Any = None
) -> tuple[Eps, Perturbation | None]:
    """Return the largest radius, and the perturbation unless it is the usual one.

    `eps` is a number or text; one per channel of an image, one per feature, or an array that
    broadcasts to an input. `mask` is true where inputs move.
    """
    shape = tuple(shape)
    most = 1.0 if span == PIXELS else float("inf")
    if isinstance(eps, str | int | float) or np.ndim(eps) == 0:
        one = _one(eps, most)
        if span == PIXELS and mask is None:
            return one, None
        each = np.full(shape, float(one))
    else:
        each = _spread("eps", _numbers(eps, most), shape)
        one = None
    if mask is not None:
        where = np.asarray(mask.cpu() if isinstance(mask, Tensor) else mask)
        if where.dtype != np.bool_ and not bool(np.isin(where, (0, 1)).all()):
            raise UsageError("mask holds other values than 0 and 1 (accepted: booleans)")
        each = np.where(_spread("mask", where.astype(np.float64), shape) > 0, each, 0.0)
    low, high = (-np.inf, np.inf) if span is None else span
    low, high = (_spread("range", np.asarray(end, np.float64), shape) for end in (low, high))
    if not bool((low <= high).all()):
        raise UsageError("range has a least value above the greatest, or one that is no number")
    moves = Perturbation(*(np.ascontiguousarray(a, np.float64) for a in (each, low, high)))
    return (Eps(moves.eps, most) if one is None or moves.eps != one else one), moves


def _one(eps: Any, most: float) -> Eps:
    if isinstance(eps, Eps):
        return Eps(eps.text, most)  # as it was written
    return Eps(eps if isinstance(eps, str | float) else float(eps), most)


def _numbers(eps: Any, most: float) -> np.ndarray:
    values = eps.detach().cpu().double().numpy() if isinstance(eps, Tensor) else eps
    if isinstance(values, list | tuple) and all(isinstance(v, str | int | float) for v in values):
        values = [float(_one(v, most)) for v in values]
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise UsageError(f"eps is of type {array.dtype} (accepted: numbers)")
    array = array.astype(np.float64)
    if not bool((np.isfinite(array) & (array >= 0) & (array <= most)).all()):
        raise UsageError(f"eps holds values that are no radius (accepted: 0 to {most:g})")
    return array


def _spread(what: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return one number for each place; a vector is one per channel."""
    given = array.shape
    if array.ndim == 1 and len(shape) > 1:  # never along the last axis
        array = array.reshape(-1, *(1 for _ in shape[1:]))
    try:
        return np.array(np.broadcast_to(array, shape))
    except ValueError:
        raise UsageError(
            f"{what} has shape {given} for inputs {shape} (accepted: a number, one per "
            f"channel or feature {shape[:1]}, or an array that broadcasts to {shape})"
        ) from None
