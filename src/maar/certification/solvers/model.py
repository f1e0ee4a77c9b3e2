"""A linear or mixed-integer program as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class Csr:
    """A sparse matrix, row by row: row i has `value[start[i]:start[i + 1]]` at these `index`."""

    start: np.ndarray
    index: np.ndarray
    value: np.ndarray
    columns: int

    @staticmethod
    def of(dense: np.ndarray) -> Csr:
        """The entries that are not zero."""
        rows, index = np.nonzero(dense)
        start = np.zeros(len(dense) + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=len(dense)), out=start[1:])
        return Csr(start, index.astype(np.int32), dense[rows, index], dense.shape[1])

    @staticmethod
    def diagonals(*parts: tuple[np.ndarray, np.ndarray], columns: int) -> Csr:
        """Row i has entry `value[i]` at column `index[i]` of each part (index, value)."""
        count = len(parts[0][0])
        index = np.stack([index for index, _ in parts], 1).astype(np.int32)
        value = np.stack([value for _, value in parts], 1).astype(np.float64)
        start = np.arange(count + 1, dtype=np.int64) * len(parts)
        return Csr(start, index.ravel(), value.ravel(), columns)

    @staticmethod
    def stacked(parts: list[Csr]) -> Csr:
        """The rows of all parts, in order."""
        ends = np.cumsum([0, *(len(part.value) for part in parts)])
        starts = [part.start[:-1] + end for part, end in zip(parts, ends, strict=False)]
        return Csr(
            np.concatenate([*starts, ends[-1:]]),
            np.concatenate([part.index for part in parts]),
            np.concatenate([part.value for part in parts]),
            max(part.columns for part in parts),
        )

    def __len__(self) -> int:
        return len(self.start) - 1

    def row_of_each(self) -> np.ndarray:
        """The row of every entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def transposed_times(self, y: np.ndarray) -> np.ndarray:
        """A' y: for each column the sum over the rows."""
        weights = self.value * y[self.row_of_each()]
        return np.bincount(self.index, weights=weights, minlength=self.columns)

    def __abs__(self) -> Csr:
        return replace(self, value=np.abs(self.value))


@dataclass(frozen=True, eq=False)
class Model:
    """min cost . x + constant over row_lb <= A x <= row_ub, lb <= x <= ub, some x whole numbers.

    lb and ub are finite: a lower bound of the minimum can then be had from any dual vector.
    """

    cost: np.ndarray
    constant: float
    lb: np.ndarray
    ub: np.ndarray
    integral: np.ndarray
    """[columns], bool"""
    A: Csr
    row_lb: np.ndarray
    row_ub: np.ndarray

    @property
    def is_lp(self) -> bool:
        """Whether no column is a whole number."""
        return not bool(self.integral.any())

    @property
    def is_finite(self) -> bool:
        """Whether all numbers are, but for the sides of rows, of which none is NaN."""
        numbers = (self.cost, self.constant, self.lb, self.ub, self.A.value)
        sides = (self.row_lb, self.row_ub)
        return all(np.isfinite(part).all() for part in numbers) and not any(
            np.isnan(side).any() for side in sides
        )

    def relaxed(self) -> Model:
        """The linear program: the same without integrality."""
        return replace(self, integral=np.zeros_like(self.integral))
