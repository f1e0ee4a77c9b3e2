"""Two ways to compute: float64 with an account of every rounding, and rational numbers.

Both offer the same few operations, so that the check itself is written once. In float64, `gamma`
bounds what a sum of n products loses (README, "Rounding"); in rational numbers it is zero.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from maar_check.refusal import require

Array = np.ndarray[Any, np.dtype[Any]]
UNIT = 2.0**-53  # one rounding of float64
UNDERFLOW = 2.0**-600  # more than all underflows of one step together (README)
LARGEST = 2.0**300  # no magnitude may reach this, so that the line above is true
LOST = 1.02  # the account itself is a sum of non-negative floats: it is off by less than this


class Floats:
    """IEEE float64, sums in any order, with or without fused multiply-add."""

    exact = False
    tiny: Any = UNDERFLOW

    @staticmethod
    def array(value: Any) -> Array:
        """Take over numbers that are floats already."""
        return np.asarray(value, np.float64)

    @staticmethod
    def gamma(n: int, blur: int = 0) -> Any:
        """Relative error of a sum of n products of numbers that are `blur` roundings off."""
        n = n + blur
        require(n < 2**40, f"a sum of {n} terms is longer than the rounding account allows")
        return LOST * n * UNIT / (1 - n * UNIT)

    @staticmethod
    def dot(a: Array, b: Array) -> Array:
        """Matrix product, in any order of summation."""
        return np.matmul(a, b)

    @staticmethod
    def down(value: Array) -> Array:
        """The next float below: the last subtraction was rounded once."""
        return np.nextafter(value, -np.inf)

    @staticmethod
    def chord(lo: Array, hi: Array) -> Array:
        """About hi / (hi - lo), in [0, 1]: any slope there is sound."""
        return np.clip(hi / (hi - lo), 0.0, 1.0)

    @staticmethod
    def intercept(slope: Array, lo: Array, hi: Array) -> Array:
        """At least max(-slope lo, (1 - slope) hi): the line above covers both ends."""
        return np.maximum(-slope * lo, (1 - slope) * hi) * (1 + 8 * UNIT) + UNDERFLOW

    @staticmethod
    def finite(value: Array) -> bool:
        """Whether every number is one, of a size that the account allows."""
        return bool((np.abs(value) < LARGEST).all())


class Rationals:
    """Fractions with powers of two below: nothing is rounded but lemmas, and those outwards."""

    exact = True
    tiny: Any = Fraction(0)

    @staticmethod
    def array(value: Any) -> Array:
        """Each float as the rational number that it is."""
        value = np.asarray(value)
        if value.dtype == object:
            return value
        made = np.empty(value.size, object)
        made[:] = [Fraction(each) for each in value.astype(np.float64).ravel().tolist()]
        return made.reshape(value.shape)

    @staticmethod
    def gamma(n: int, blur: int = 0) -> Any:
        """Nothing is lost but what derived numbers are off by."""
        return Fraction(2 * blur, 2**53)

    @staticmethod
    def dot(a: Array, b: Array) -> Array:
        """Matrix product over whole numbers, which Python multiplies exactly."""
        (x, below), (y, under) = _whole(a), _whole(b)
        product = np.matmul(x, y)
        made = np.empty(product.size, object)
        made[:] = [Fraction(int(each), below * under) for each in product.ravel()]
        return made.reshape(product.shape)

    @staticmethod
    def down(value: Array) -> Array:
        """Round down to a multiple of 2^-80, so that numbers stay short."""
        made = np.empty(value.size, object)
        made[:] = [Fraction(math.floor(each * 2**80), 2**80) for each in value.ravel()]
        return made.reshape(value.shape)

    @staticmethod
    def chord(lo: Array, hi: Array) -> Array:
        """A float near hi / (hi - lo), in [0, 1]: any slope there is sound."""
        near = [min(1.0, max(0.0, float(u / (u - v)))) for v, u in zip(lo, hi, strict=True)]
        return Rationals.array(near)

    @staticmethod
    def intercept(slope: Array, lo: Array, hi: Array) -> Array:
        """The larger of -slope lo and (1 - slope) hi."""
        return np.maximum(-slope * lo, (1 - slope) * hi) if len(lo) else Rationals.array([])

    @staticmethod
    def finite(value: Array) -> bool:
        """Rational numbers always are."""
        return True


Numbers = type[Floats] | type[Rationals]


def _whole(value: Array) -> tuple[Array, int]:
    """The numbers times a common denominator, and that denominator."""
    flat = value.ravel()
    below = math.lcm(1, *{int(each.denominator) for each in flat})
    made = np.empty(value.size, object)
    made[:] = [int(each.numerator) * (below // int(each.denominator)) for each in flat]
    return made.reshape(value.shape), below
