"""What a VNNLIB file asserts, as a tree of linear comparisons with exact numbers.

Both versions of the format are read into this form; `normal_form` makes a property of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

# A variable is a number: input i is i, output j is -1 - j.
Variable = int
Exact = Fraction | int

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,9}))?", re.ASCII)
# An exact 1e-999999999 has a billion digits; no number in a float has more than this.
LONGEST, FARTHEST = 1000, 400


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
            self.terms[variable] = self.terms.get(variable, 0) + factor * coefficient
        if other.constant:
            self.constant += factor * other.constant

    def times(self, other: Linear) -> Linear:
        """The product; a `ValueError` if it is not linear."""
        if self.terms and other.terms:
            raise ValueError("the product of two variables is not linear")
        factor, rest = (other.constant, self) if self.terms else (self.constant, other)
        return Linear({v: factor * c for v, c in rest.terms.items()}, factor * rest.constant)


@dataclass(frozen=True)
class Atom:
    """`left` <= 0, or < 0 if `strict`."""

    left: Linear
    strict: bool
    at: int
    """Its place in the file; the parser knows what to make of it."""


@dataclass(frozen=True)
class And:
    """All of the parts."""

    parts: list[Formula]


@dataclass(frozen=True)
class Or:
    """At least one of the parts."""

    parts: list[Formula]


Formula = Atom | And | Or


def compare(sign: str, left: Linear, right: Linear, at: int) -> Formula:
    """A comparison of two sums."""
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
    match = NUMBER.fullmatch(text)
    if not match:
        raise ValueError(f"{text[:40]!r} is not a number")
    if len(text) > LONGEST or abs(int(match[1] or 0)) > FARTHEST:
        raise ValueError(f"the number {text[:40]!r} is out of range")
    return Fraction(text)
