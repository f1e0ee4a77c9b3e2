"""What a network is made of: affine maps, reshapes, sums and ReLUs.

An affine map is known by its numbers up to a relative error of `blur` roundings (0 for numbers that
the file itself holds). It gives the values of points, of boxes, and takes rows over its output to
rows over its input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from maar_check.arithmetic import Array, Numbers
from maar_check.rows import Rows

Shape = tuple[int, ...]


@dataclass
class Layer:
    """One operation; `sources` are the numbers of its values, `shape` is that of its output."""

    sources: tuple[int, ...]
    shape: Shape


@dataclass
class Relu(Layer):
    """max(v, 0)."""


@dataclass
class Reshape(Layer):
    """The same numbers in the same order."""


@dataclass
class Sum(Layer):
    """Two values, added."""


@dataclass
class Affine(Layer):
    """x -> W x + b. `size` is the sum of absolute terms that b was made of."""

    before: Shape
    bias: Array
    size: Array
    blur: int = field(default=0, kw_only=True)

    @property
    def terms(self) -> int:
        """Bound on the length of every sum that this map makes, in any direction."""
        return math.prod(self.before) + math.prod(self.shape) + self.blur + 32

    @property
    def fan_in(self) -> int:
        """Products in each sum of the forward pass."""
        raise NotImplementedError

    def linear(self, num: Numbers, x: Array, absolute: bool = False) -> Array:
        """W x, or |W| x, of vectors [N, *before]."""
        raise NotImplementedError

    def adjoint(self, num: Numbers, rows: Rows) -> Rows:
        """Rows over the output as rows over the input, without the bias."""
        raise NotImplementedError


@dataclass
class Dense(Affine):
    """A matrix, [out, in]."""

    weight: Array

    @property
    def fan_in(self) -> int:
        return self.weight.shape[1]

    def linear(self, num: Numbers, x: Array, absolute: bool = False) -> Array:
        weight = np.abs(self.weight) if absolute else self.weight
        return num.dot(x, num.array(weight).T)

    def adjoint(self, num: Numbers, rows: Rows) -> Rows:
        return Rows(num.dot(rows.A, num.array(self.weight)))


@dataclass
class Scale(Affine):
    """A factor for each number, broadcast over the value's shape."""

    weight: Array

    @property
    def fan_in(self) -> int:
        return 1

    def linear(self, num: Numbers, x: Array, absolute: bool = False) -> Array:
        return x * num.array(np.abs(self.weight) if absolute else self.weight)

    def adjoint(self, num: Numbers, rows: Rows) -> Rows:
        full = np.broadcast_to(num.array(self.weight), self.shape)
        return Rows(rows.A * rows.look_up(full), rows.corner)


@dataclass
class Conv(Affine):
    """A convolution, [out, in, height, width], without groups."""

    weight: Array
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    """Top, left, bottom, right."""
    dilation: tuple[int, int]

    @property
    def fan_in(self) -> int:
        return math.prod(self.weight.shape[1:])

    @cached_property
    def matrix(self) -> Array:
        """The kernel as [out, in * height * width]."""
        return self.weight.reshape(len(self.weight), -1)

    def linear(self, num: Numbers, x: Array, absolute: bool = False) -> Array:
        top, left, bottom, right = self.pads
        x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
        (dy, dx), (sy, sx) = self.dilation, self.stride
        kernel = self.weight.shape[2:]
        spans = (dy * (kernel[0] - 1) + 1, dx * (kernel[1] - 1) + 1)
        seen = np.lib.stride_tricks.sliding_window_view(x, spans, (2, 3))
        seen = seen[:, :, ::sy, ::sx, ::dy, ::dx].transpose(0, 1, 4, 5, 2, 3)
        columns = seen.reshape(len(x), self.fan_in, -1)
        matrix = num.array(np.abs(self.matrix) if absolute else self.matrix)
        return num.dot(matrix, columns).reshape(len(x), *self.shape)

    def adjoint(self, num: Numbers, rows: Rows) -> Rows:
        count, _, height, width = rows.A.shape
        (dy, dx), (sy, sx) = self.dilation, self.stride
        channels, ky, kx = self.weight.shape[1:]
        matrix = num.array(self.matrix).T
        flat = rows.A.reshape(count, len(self.weight), -1)
        if flat.shape[2] == 1:
            part = num.dot(flat[:, :, 0], matrix.T)
        else:
            part = num.dot(matrix, flat)
        part = part.reshape(count, channels, ky, kx, height, width)
        tall, wide = (height - 1) * sy + dy * (ky - 1) + 1, (width - 1) * sx + dx * (kx - 1) + 1
        whole = num.array(np.zeros((count, channels, tall, wide)))
        for i in range(ky):
            for j in range(kx):
                y, x = i * dy, j * dx
                down, across = slice(y, y + (height - 1) * sy + 1, sy), x + (width - 1) * sx + 1
                whole[:, :, down, x:across:sx] += part[:, :, i, j]
        top, left = self.pads[:2]
        if rows.corner is not None:
            corner = rows.corner * np.array([sy, sx]) - np.array([top, left])
            return Rows(whole, corner).within(self.before)
        return Rows(_cut(whole, top, left, self.before))


def _cut(whole: Array, top: int, left: int, shape: Shape) -> Array:
    """The part of a padded image that is the image; what no kernel reached is zero."""
    cut = whole[:, :, top : top + shape[1], left : left + shape[2]]
    missing = [(0, 0), (0, 0), (0, shape[1] - cut.shape[2]), (0, shape[2] - cut.shape[3])]
    return np.pad(cut, missing)
