"""Linear functions of one value of the network: many rows, each over all of it or over a window.

A neuron of a convolution sees a small window of the value before it, so its row is kept over that
window only, with the place of the window's corner. A place outside the value has coefficient 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maar_check.arithmetic import Array, Numbers


@dataclass
class Rows:
    """`A`, [R, *shape], or [R, C, h, w] over windows whose corners are `corner`, [R, 2]."""

    A: Array
    corner: Array | None = None

    def __len__(self) -> int:
        return len(self.A)

    def look_up(self, value: Array) -> Array:
        """A vector of the value's shape as each row sees it, to be multiplied with A."""
        if self.corner is None:
            return value[None]
        return self._gather(value)

    def _places(self, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
        """Where each row's window lies, and which of it is within the value."""
        assert self.corner is not None
        y = self.corner[:, :1] + np.arange(self.A.shape[2])
        x = self.corner[:, 1:] + np.arange(self.A.shape[3])
        y_in, x_in = (y >= 0) & (y < shape[1]), (x >= 0) & (x < shape[2])
        inside = y_in[:, :, None] & x_in[:, None, :]
        return y.clip(0, shape[1] - 1)[:, :, None], x.clip(0, shape[2] - 1)[:, None, :], inside

    def _gather(self, value: Array) -> Array:
        y, x, inside = self._places(value.shape)
        return np.moveaxis(value[:, y, x] * inside, 0, 1)

    def within(self, shape: tuple[int, ...]) -> Rows:
        """The rows without what stands outside the value; over all of it if windows are as large.

        Padding is zero whatever the coefficient, so dropping it changes nothing.
        """
        if self.corner is None:
            return self
        if self.A.shape[2] * self.A.shape[3] >= shape[1] * shape[2]:
            return self.spread(shape)
        return Rows(self.A * self._places(shape)[2][:, None], self.corner)

    def times(self, num: Numbers, values: list[Array]) -> list[Array]:
        """Sum of coefficient times entry, for each row and each vector."""
        if self.corner is None:
            flat = self.A.reshape(len(self.A), -1)
            stacked = np.stack([value.ravel() for value in values], 1)
            return list(num.dot(flat, stacked).T)
        return [(self.A * self._gather(value)).sum((1, 2, 3)) for value in values]

    def absolute(self) -> Rows:
        """The rows of absolute values."""
        return Rows(np.abs(self.A), self.corner)

    def plus(self, other: Rows, shape: tuple[int, ...]) -> Rows:
        """The sum of two linear functions of one value."""
        if self.corner is None and other.corner is None:
            return Rows(self.A + other.A)
        same = self.corner is not None and other.corner is not None
        if same and self.A.shape == other.A.shape and bool((self.corner == other.corner).all()):
            return Rows(self.A + other.A, self.corner)
        return Rows(self.spread(shape).A + other.spread(shape).A)

    def spread(self, shape: tuple[int, ...]) -> Rows:
        """The same rows over all of the value."""
        if self.corner is None:
            return self
        y, x, inside = self._places(shape)
        whole = np.zeros((len(self), *shape), self.A.dtype)
        row, i, j = np.nonzero(inside)
        whole[row, :, y[row, i, 0], x[row, 0, j]] = self.A[row, :, i, j]
        return Rows(whole)


def unit_rows(num: Numbers, index: Array, sign: Array, shape: tuple[int, ...]) -> Rows:
    """One row for each neuron of `index`: +1 or -1 there and 0 elsewhere."""
    sign = num.array(sign)
    if len(shape) != 3:
        A = num.array(np.zeros((len(index), *shape)))
        A[(np.arange(len(index)), *np.unravel_index(index, shape))] = sign
        return Rows(A)
    channel, y, x = np.unravel_index(index, shape)
    A = num.array(np.zeros((len(index), shape[0], 1, 1)))
    A[np.arange(len(index)), channel, 0, 0] = sign
    return Rows(A, np.stack([y, x], 1))
