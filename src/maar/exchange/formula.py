"""What a VNNLIB file asserts, as a tree of linear comparisons with exact numbers.

Both versions of the format are read into this form; `normal_form` makes a property of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from maar.core import limits

# A variable is a number: input i is i, output j is -1 - j.
Variable = int
Exact = Fraction | int

# (Each digit can be matched in one way only, so that a mistake at the end costs linear time.)
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,9}))?", re.ASCII)


def output(index: int) -> Variable:
    """The variable of output `index`."""
    return -1 - index


def spell(variable: Variable) -> str:
    """The variable as a file of version 1.0 writes it."""
    return f"X_{variable}" if variable >= 0 else f"Y_{-1 - variable}"


@dataclass
class Linear:
    """A sum of variables times coefficients, and a constant."""

    terms: dict[Variable, Exact] = field(default_factory=dict)
    constant: Exact = 0

    def add(self, other: Linear, factor: int = 1) -> None:
        """Add a multiple of another sum to this one."""
        for variable, coefficient in other.terms.items():
            self.terms[variable] = _short(self.terms.get(variable, 0) + factor * coefficient)
        if other.constant:
            self.constant = _short(self.constant + factor * other.constant)

    def times(self, other: Linear) -> Linear:
        """The product; a `ValueError` if it is not linear."""
        if self.terms and other.terms:
            raise ValueError("the product of two variables is not linear")
        factor, rest = (other.constant, self) if self.terms else (self.constant, other)
        terms = {v: _short(factor * c) for v, c in rest.terms.items()}
        return Linear(terms, _short(factor * rest.constant))


def _short(value: Exact) -> Exact:
    """The value itself; a `ValueError` if it has too many digits to go on with."""
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    if bits > limits.BITS:
        raise ValueError(f"a result has {bits} bits (accepted: up to {limits.BITS})")
    return value


@dataclass(frozen=True)
class Atom:
    """`left` <= 0, or < 0 if `strict`."""

    left: Linear
    strict: bool
    at: int
    """Its place in the file; the parser knows what to make of it."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Many comparisons of one input with one number each, all of them true.

    Entry k says that input `inputs[k]` is at most (`is_upper[k]`) or at least `numbers[place[k]]`.
    """

    inputs: np.ndarray
    is_upper: np.ndarray
    place: np.ndarray
    numbers: list[Exact]
    """Shared by all `Bounds` of a file."""


@dataclass(frozen=True)
class And:
    """All of the parts."""

    parts: list[Formula]


@dataclass(frozen=True)
class Or:
    """At least one of the parts."""

    parts: list[Formula]


Leaf = Atom | Bounds
Formula = Leaf | And | Or


def compare(sign: str, left: Linear, right: Linear, at: int) -> Formula:
    """A comparison of two sums; a `ValueError` if a number gets too long."""
    if sign in (">", ">="):
        return _less(right, left, sign == ">", at)
    if sign in ("<", "<="):
        return _less(left, right, sign == "<", at)
    both: list[Formula] = [
        _less(left, right, sign == "!=", at),
        _less(right, left, sign == "!=", at),
    ]
    return Or(both) if sign == "!=" else And(both)


def _less(left: Linear, right: Linear, strict: bool, at: int) -> Atom:
    difference = Linear(dict(left.terms), left.constant)
    difference.add(right, -1)
    return Atom(difference, strict, at)


def number(text: str) -> Fraction:
    """An exact number from its decimal spelling; a `ValueError` says what is wrong with it."""
    if len(text) > limits.DIGITS:
        raise ValueError(
            f"the number {text[:40]!r}... is out of range: {len(text)} characters "
            f"(accepted: up to {limits.DIGITS})"
        )
    match = NUMBER.fullmatch(text)
    if not match:
        raise ValueError(f"{text[:40]!r} is not a number")
    if abs(int(match[1] or 0)) > limits.EXPONENT:
        raise ValueError(
            f"the number {text[:40]!r} is out of range: exponent {int(match[1])} "
            f"(accepted: up to {limits.EXPONENT} and down to -{limits.EXPONENT})"
        )
    return Fraction(text)
