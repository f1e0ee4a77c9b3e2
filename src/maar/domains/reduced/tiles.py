"""The bounds and rows of a convolution's neurons, computed place by place.

The neurons at one place of a convolution see the same small window. There they are rows over the
alive neurons of the ReLU below, whose own rows (`reduced.near`) all fit into a small part of the
image. So each place is a network of its own with a few hundred rows and columns, and a row costs a
small product instead of a convolution. Neurons that are always zero have no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maar.domains.bound import Pair
from maar.domains.reduced.linear import Affine, Lines, replaced
from maar.domains.reduced.near import Near, Place
from maar.domains.rows import Rows


@dataclass(frozen=True)
class Below:
    """A ReLU below the tiles: rows of its neurons, and the lines that stand for the unstable ones.

    `slot`, [channels, height, width]: which unstable neuron each one is, or -1. `first`: the column
    of the first of them. `lb`, `ub`: their bounds.
    """

    near: Near
    lines: Lines
    index: Tensor
    slot: Tensor
    first: int
    lb: Tensor
    ub: Tensor


@dataclass(frozen=True)
class Tile:
    """The neurons at one place: their rows over the `pixels` and the z (`columns`) that they see.

    `member`: which neurons they are. `relaxed`: of each ReLU below, the first of its columns here,
    the rows of its unstable neurons, and their lines. `ub`: upper bounds of the z.
    """

    member: Tensor
    rows: Affine
    pixels: Tensor
    columns: Tensor
    relaxed: list[tuple[int, Affine, Lines]]
    ub: Tensor
    centre: Tensor
    radius: Tensor

    def lower(self, rows: Affine) -> Tensor:
        """CROWN's lower bounds of rows like the tile's own."""
        for start, layer, lines in reversed(self.relaxed):
            rows = replaced(rows, start, layer, lines, upper=False)
        return rows.c + rows.X @ self.centre - rows.X.abs() @ self.radius - rows.e

    def quick(self) -> Pair:
        """Bounds with every z anywhere in its own range."""
        rows, half = self.rows, self.ub / 2
        middle = rows.c + rows.X @ self.centre + rows.Z @ half
        reach = rows.X.abs() @ self.radius + rows.Z.abs() @ half + rows.e
        return middle - reach, middle + reach


def settled(rows: Affine, pair: Pair, lower: Callable[[Affine], Tensor]) -> Pair:
    """Tighter bounds of rows: both of them where a row can have either sign, else one.

    `lower` bounds rows from below. The middle of the pair says which bound is worth trying first;
    rows whose sign the pair settles are left alone.
    """
    lb, ub = pair[0].clone(), pair[1].clone()
    left = ((lb < 0) & (ub > 0)).nonzero().squeeze(1)
    is_up = lb[left] + ub[left] > 0
    for _ in range(2):
        sign = torch.where(is_up, 1.0, -1.0).to(lb)
        part = rows[left]
        low = lower(Affine(part.X * sign[:, None], part.Z * sign[:, None], part.c * sign, part.e))
        up, down = left[is_up], left[~is_up]
        lb[up] = torch.maximum(lb[up], low[is_up])
        ub[down] = torch.minimum(ub[down], -low[~is_up])
        is_open = (lb[left] < 0) & (ub[left] > 0)
        left, is_up = left[is_open], ~is_up[is_open]
    return lb, ub


class Tiling:
    """What all tiles of a layer share.

    `below`: the ReLUs below, the last of them with the rows of its active neurons too (`active`
    says which of its rows these are). `centre`, `radius` and `shape` are the image's. `charge` adds
    to rows over these pixels and columns what rounding may do to them.
    """

    def __init__(
        self,
        below: Sequence[Below],
        active: Tensor,
        centre: Tensor,
        radius: Tensor,
        shape: torch.Size,
        charge: Callable[[Affine, Tensor, Tensor], Affine],
    ) -> None:
        self.below, self.active, self.shape, self.charge = below, active, shape, charge
        self.centre, self.radius = centre, radius
        self.pixel = torch.arange(shape.numel(), device=centre.device).view(shape)
        # From a row of the last ReLU's to its unstable neuron.
        last = below[-1]
        self.unstable = last.slot.flatten()[last.near.index]

    def tiles(self, rows: Rows, constant: Tensor, error: Tensor) -> Iterator[Tile]:
        """The tiles of neurons whose rows, over the last ReLU's input, are windows."""
        assert rows.corner is not None
        corners, group = rows.corner.unique(dim=0, return_inverse=True)
        counts = torch.bincount(group, minlength=len(corners)).tolist()
        members = group.argsort(stable=True).split(counts)
        for (top, left), member in zip(corners.tolist(), members, strict=True):
            A = rows.A[member]
            yield self._tile(member, A, top, left, constant[member], error[member])

    def _tile(
        self, member: Tensor, A: Tensor, top: int, left: int, constant: Tensor, error: Tensor
    ) -> Tile:
        last = self.below[-1]
        window = Place(top, top + A.shape[2], left, left + A.shape[3])
        inside = window.within(last.slot.shape)
        A = A[
            :,
            :,
            inside.top - top : inside.bottom - top,
            inside.left - left : inside.right - left,
        ].flatten(1)
        slot = inside.cut(last.near.slot)
        alive = (slot >= 0).nonzero().squeeze(1)
        A, slot = A[:, alive], slot[alive]
        near = last.near[slot]
        place = Place.around(near.X).within(self.shape)
        places = [
            Place.around(each).within(b.slot.shape)
            for each, b in zip(near.Z, self.below, strict=False)
        ]
        chosen = [present(b.slot, p) for b, p in zip(self.below, places, strict=False)]
        under = self._affine(near, place, chosen)
        is_on = self.active[slot]
        relaxed = self._relaxed(place, places, chosen)
        chosen.append(self.unstable[slot[~is_on]])
        relaxed.append((under.Z.shape[1], under[~is_on], _taken(last.lines, chosen[-1])))
        on, part = under[is_on], A[:, is_on]
        own = Affine(
            part @ on.X,
            torch.cat([part @ on.Z, A[:, ~is_on]], 1),
            constant + part @ on.c,
            error + part.abs() @ on.e,
        )
        pixels = place.cut(self.pixel)
        columns = torch.cat([b.first + c for b, c in zip(self.below, chosen, strict=True)])
        ub = torch.cat([b.ub[c] for b, c in zip(self.below, chosen, strict=True)])
        return Tile(
            member,
            self.charge(own, pixels, columns),
            pixels,
            columns,
            relaxed,
            ub,
            self.centre[pixels],
            self.radius[pixels],
        )

    def _affine(self, near: Near, place: Place, chosen: Sequence[Tensor]) -> Affine:
        """Rows over a part of the image and the chosen z of the ReLUs before."""
        pairs = zip(self.below, chosen, strict=False)
        return near.over(place, [(b.index[which], b.slot.shape) for b, which in pairs])

    def _relaxed(
        self, place: Place, places: Sequence[Place], chosen: Sequence[Tensor]
    ) -> list[tuple[int, Affine, Lines]]:
        """The chosen z of each ReLU but the last. All that their rows see must be in the places."""
        found: list[tuple[int, Affine, Lines]] = []
        start = 0
        for j, which in enumerate(chosen):
            below = self.below[j]
            near = below.near[below.near.slot.flatten()[below.index[which]]]
            place.require(near.X, self.shape)
            for i, rows in enumerate(near.Z):
                places[i].require(rows, self.below[i].slot.shape)
            found.append((start, self._affine(near, place, chosen[:j]), _taken(below.lines, which)))
            start += len(which)
        return found


def present(slot: Tensor, place: Place) -> Tensor:
    """The slots of the neurons in a place that have one."""
    found = place.cut(slot)
    return found[found >= 0]


def _taken(lines: Lines, which: Tensor) -> Lines:
    return Lines(*(each[which] for each in lines))
