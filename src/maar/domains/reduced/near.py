"""Rows of a convolution's neurons, each kept as a window on the image and on the ReLUs before.

Written out over the whole image such a row is nearly all zeros. A neuron of the next convolution
sees a few of these rows, and all of them fit into a small part of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maar.domains.reduced.linear import Affine
from maar.domains.rows import Rows

# Windows of more coefficients together than this are no small part of anything.
MOST = 1024


@dataclass(frozen=True)
class Place:
    """A rectangle of a value, in every channel: rows from `top`, columns from `left`."""

    top: int
    bottom: int
    left: int
    right: int

    @staticmethod
    def around(rows: Rows) -> Place:
        """The smallest one that holds the windows of all rows; it may hang over the edges."""
        assert rows.corner is not None
        if not len(rows):
            return Place(0, 0, 0, 0)
        (top, left), (bottom, right) = rows.corner.amin(0).tolist(), rows.corner.amax(0).tolist()
        height, width = rows.A.shape[-2:]
        return Place(top, bottom + height, left, right + width)

    def within(self, shape: torch.Size) -> Place:
        """The part that is inside a value."""
        top, left = min(max(self.top, 0), shape[1]), min(max(self.left, 0), shape[2])
        bottom, right = min(self.bottom, shape[1]), min(self.right, shape[2])
        return Place(top, max(bottom, top), left, max(right, left))

    def cut(self, field: Tensor) -> Tensor:
        """The same part of a field [channels, height, width], flat."""
        return field[:, self.top : self.bottom, self.left : self.right].flatten()

    def write(self, rows: Rows) -> Tensor:
        """Rows whose windows, up to padding, are in here, as rows over this part: [R, its size]."""
        assert rows.corner is not None
        shape = torch.Size((rows.A.shape[1], self.bottom - self.top, self.right - self.left))
        if not len(rows) or not shape.numel():
            return rows.A.new_zeros(len(rows), shape.numel())
        moved = rows.corner - rows.corner.new_tensor([self.top, self.left])
        return Rows(rows.A, None, moved).dense(shape).A.flatten(1)

    def require(self, rows: Rows, shape: torch.Size) -> None:
        """Raise unless all that the rows see of a value of `shape` is in here."""
        place = Place.around(rows).within(shape)
        if place.top == place.bottom or place.left == place.right:
            return
        is_in = self.top <= place.top and place.bottom <= self.bottom
        if not (is_in and self.left <= place.left and place.right <= self.right):
            raise ValueError(f"{place} is not within {self}")


@dataclass(frozen=True)
class Near:
    """Rows X x + Z z + c (+- e): `X` windows on the image, `Z[j]` on the input of ReLU j.

    `slot`, [channels, height, width]: which row is a neuron's, -1 where it has none.
    """

    index: Tensor
    slot: Tensor
    X: Rows
    Z: list[Rows]
    c: Tensor
    e: Tensor

    @staticmethod
    def fits(windows: Sequence[Rows]) -> bool:
        """Whether these are windows, and small ones."""
        if any(rows.corner is None or rows.image is not None for rows in windows):
            return False
        return sum(rows.A[:1].numel() for rows in windows) <= MOST

    def __getitem__(self, rows: Tensor) -> Near:
        """Some of the rows; `slot` is still that of all."""
        return Near(
            self.index[rows],
            self.slot,
            _chosen(self.X, rows),
            [_chosen(each, rows) for each in self.Z],
            self.c[rows],
            self.e[rows],
        )

    def over(self, place: Place, z: Sequence[tuple[Tensor, torch.Size]]) -> Affine:
        """The rows over a part of the image, and over these neurons of each ReLU's input before."""
        none = self.c.new_zeros(len(self.c), 0)
        Z = [rows.columns(*which) for rows, which in zip(self.Z, z, strict=True)]
        return Affine(place.write(self.X), torch.cat([none, *Z], 1), self.c, self.e)


def _chosen(rows: Rows, which: Tensor) -> Rows:
    assert rows.corner is not None
    return Rows(rows.A[which], None, rows.corner[which])


def slots(index: Tensor, shape: torch.Size) -> Tensor:
    """Which of the neurons `index` each one of a value is; -1 where it is none."""
    slot = index.new_full((shape.numel(),), -1)
    slot[index] = torch.arange(len(index), device=index.device)
    return slot.view(shape)
