"""A property of a network: boxes of inputs, and for each the outputs that must not occur.

The network is safe if no input of a box gives an output in one of the box's conditions. Numbers
are kept so that rounding never helps a proof: `lb`, `ub` and `b` are rounded towards more to prove,
and a counterexample must lie in the exact box (`low`, `high`) and meet `b_in`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np


@dataclass(frozen=True, eq=False)
class Condition:
    """The outputs y with A y <= b in every row, or < in strict rows. Without rows: all outputs."""

    A: np.ndarray
    """[rows, outputs], float64, exact."""
    b: np.ndarray
    """[rows], rounded up."""
    b_in: np.ndarray
    """[rows], rounded down."""
    strict: np.ndarray | None = None
    """[rows], whether A y = b is outside; None: nowhere. Proofs need not ask: they refute both."""

    def is_strict(self) -> list[bool]:
        """Whether each row is."""
        return [False] * len(self.b) if self.strict is None else self.strict.tolist()


@dataclass(frozen=True, eq=False)
class Case:
    """A box of inputs and its unsafe outputs: the union of the conditions."""

    lb: np.ndarray
    """[inputs], float64, rounded down."""
    ub: np.ndarray
    """[inputs], float64, rounded up."""
    low: tuple[Fraction, ...]
    """The least value that a counterexample may have in each place, exactly."""
    high: tuple[Fraction, ...]
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, eq=False)
class Property:
    """The unsafe set: the union of the cases. None at all means that nothing is unsafe."""

    inputs: int
    outputs: int
    cases: tuple[Case, ...]
