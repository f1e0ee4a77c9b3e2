"""Perturbation radii as people write them: 0.1 or "2/255"."""

from __future__ import annotations

import math

from maar.core.errors import UsageError


class Eps(float):
    """An L-infinity radius on pixels in [0,1]. A float that remembers how it was written.

    `Eps("2/255") == Eps(2 / 255)`: the spelling is for people only, comparisons
    and configuration hashes see the number.
    """

    text: str

    most: float

    def __new__(cls, value: str | float, most: float = 1.0) -> Eps:
        """`most`: the largest radius that makes sense; pixels have 1, a table's features none."""
        self = super().__new__(cls, _parse(value, most))
        self.most = most
        self.text = str(value).strip() if isinstance(value, str) else _spell(float(value))
        return self

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Eps({self.text!r})"

    def __reduce__(self) -> tuple[type[Eps], tuple[str, float]]:
        return Eps, (self.text, self.most)


def _spell(value: float) -> str:
    """Write k/255 where the number is exactly that quotient, else the shortest decimal."""
    k = round(value * 255)
    if 0 < k < 255 and value == k / 255 and len(repr(value)) > 8:
        return f"{k}/255"
    return repr(value)


def _significand(text: str) -> str:
    """The digits before the exponent and the fraction's line."""
    return text.lower().split("/")[0].split("e")[0]


def _parse(value: str | float, most: float) -> float:
    least = "a number in [0, 1]" if most == 1 else "a number, 0 or more,"
    accepted = f"accepted: {least} such as 0.1, or a fraction such as 2/255"
    try:
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, str):
            top, *bottom = map(float, value.split("/", 1))
            # 1/inf is the number 0, but nobody means the radius 0 by it.
            if not all(map(math.isfinite, (top, *bottom))):
                raise ValueError
            number = top / bottom[0] if bottom else top
            if number == 0 and any(digit in "123456789" for digit in _significand(value)):
                raise UsageError(f"eps = {value!r} is too small for float64 ({accepted})")
        else:
            number = float(value)
    except ZeroDivisionError:
        raise UsageError(f"eps = {value!r} divides by zero ({accepted})") from None
    except (TypeError, ValueError):
        raise UsageError(f"eps = {value!r} is not a number ({accepted})") from None
    if not math.isfinite(number) or number < 0:
        raise UsageError(f"eps = {value!r} is not a radius ({accepted})")
    if number > most:
        hint = f"; did you mean {number:g}/255?" if number <= 255 else ""
        raise UsageError(
            f"eps = {value!r} is larger than the whole pixel range [0, 1]{hint} ({accepted})"
        )
    return number
