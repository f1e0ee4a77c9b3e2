"""Rows over an image and over the outputs z of ReLUs, and lines in the place of the z.

The ReLUs are the unstable ones of a reduced network (see `bounds.reduced`); a row over z becomes a
row over the image alone when every z is replaced, layer by layer, by a line above or below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from maar.domains.reduced.blocks import Blocks

# From so many rows on, blocks are worth a gradient.
MANY = 16


@dataclass
class Affine:
    """Rows X x + Z z + c, each exact up to its own e; z lists the unstable ReLUs so far.

    (In `bounds.local` all of them have one more dimension in front, of groups.)
    """

    X: Tensor
    Z: Tensor
    c: Tensor
    e: Tensor

    def __len__(self) -> int:
        return len(self.c)

    @staticmethod
    def joined(parts: Sequence[Affine]) -> Affine:
        """The rows of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        fields = zip(*((part.X, part.Z, part.c, part.e) for part in parts), strict=True)
        return Affine(*(torch.cat(tensors) for tensors in fields))

    @property
    def blocks(self) -> Blocks | None:
        """The same rows in blocks, where computing with them pays."""
        return None

    def at(self, x: Tensor) -> Tensor:
        """X x."""
        return self.X @ x

    def __getitem__(self, keep: Tensor) -> Affine:
        return Affine(self.X[keep], self.Z[keep], self.c[keep], self.e[keep])

    def __neg__(self) -> Affine:
        return Affine(-self.X, -self.Z, -self.c, self.e)


@dataclass
class Split:
    """A part of the box for each row: where the ReLUs of one layer have the signs asked for.

    `sign`, [R, U_k]: 1 for v >= 0, -1 for v <= 0, 0 for either. There z = v or z = 0, and
    sign * v >= 0 may be taken off a lower bound any number of times: `price`, [R, U_k], >= 0, is
    how often (a Lagrange multiplier).
    """

    sign: Tensor
    price: Tensor


class Lines(NamedTuple):
    """The lines around some ReLUs: slope and intercept above, slope below (through zero)."""

    above: Tensor
    intercept: Tensor
    below: Tensor


def below_by(lb: Tensor, ub: Tensor, crowns: Tensor, slope: Tensor) -> Tensor:
    """The chosen slopes of the lines below.

    A ReLU that became stable on the way is exact; its slope is no choice any more.
    """
    return torch.where((lb < 0) & (ub > 0), slope, crowns)


def replaced(
    rows: Affine,
    start: int,
    layer: Affine,
    lines: Lines,
    upper: bool,
    split: Split | None = None,
) -> Affine:
    """The rows with every z from column `start` on replaced by a line on the side asked for.

    `layer`: the rows of those ReLUs' inputs. All may have one more dimension, of groups.
    """
    above, intercept, below = lines
    Z = rows.Z[..., start:]
    if split is not None:
        is_free, is_on = split.sign == 0, (split.sign > 0).to(Z)
        above = torch.where(is_free, above, is_on)
        intercept = torch.where(is_free, intercept, torch.zeros_like(is_on))
        below = torch.where(is_free, below, is_on)
    positive = Z.clamp(min=0)
    negative = Z - positive
    to_above, to_below = (positive, negative) if upper else (negative, positive)
    part = to_above * above + to_below * below
    if split is not None:
        part = part - split.sign * split.price
    lifted = to_above @ intercept if intercept.dim() == 1 else (to_above * intercept).sum(-1)
    added, applied = (torch.addmm, torch.addmv) if Z.dim() == 2 else (torch.baddbmm, _applied)
    # (for few rows that are bounded again and again, many small products are the slower way)
    if layer.blocks is None or (part.requires_grad and len(part) < MANY):
        X, Z = added(rows.X, part, layer.X), added(rows.Z[..., :start], part, layer.Z)
    else:
        X, Z = layer.blocks.times(part)
        X, Z = rows.X + X, rows.Z[:, :start] + Z
    return Affine(
        X,
        Z,
        applied(rows.c, part, layer.c) + lifted,
        applied(rows.e, part.abs(), layer.e),
    )


def _applied(to: Tensor, A: Tensor, v: Tensor) -> Tensor:
    """`torch.addmv` of each group."""
    return torch.baddbmm(to[..., None], A, v[..., None])[..., 0]
