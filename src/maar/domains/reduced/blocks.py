"""Rows that are zero nearly everywhere, as small dense blocks.

The rows of a convolution's neurons at one place are zero but on a small part of the image and on
few of the ReLUs before. A product with all rows is then a small product for each place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from maar.domains.reduced.linear import Affine

# A product of small matrices is worth less than one of large ones.
WORTH = 3


@dataclass(frozen=True)
class Block:
    """Some rows over the pixels and the z (`columns`) where any of them is not zero."""

    rows: Tensor
    pixels: Tensor
    columns: Tensor
    affine: Affine


@dataclass(frozen=True)
class Blocks:
    """A matrix [count, pixels + columns]; every row is in one block."""

    parts: Sequence[Block]
    count: int
    pixels: int
    columns: int

    @property
    def pays(self) -> bool:
        """Whether a product with the blocks is less work than one with the whole matrix."""
        work = sum(part.affine.X.numel() + part.affine.Z.numel() for part in self.parts)
        return WORTH * work <= self.count * (self.pixels + self.columns)

    def to(self, dtype: torch.dtype, scale: Tensor) -> Blocks:
        """The same in another precision, the pixels' columns multiplied by a scale."""
        parts = [
            replace(
                part,
                affine=Affine(
                    (part.affine.X * scale[part.pixels]).to(dtype),
                    part.affine.Z.to(dtype),
                    part.affine.c.to(dtype),
                    part.affine.e.to(dtype),
                ),
            )
            for part in self.parts
        ]
        return replace(self, parts=parts)

    def back(self, X: Tensor, Z: Tensor) -> Tensor:
        """The gradient of `times`: X and Z, each by its own part transposed, [R, count]."""
        X, Z = X.T.contiguous(), Z.T.contiguous()
        total = X.new_zeros(self.count, X.shape[1])
        for part in self.parts:
            total[part.rows] = part.affine.X @ X[part.pixels] + part.affine.Z @ Z[part.columns]
        return total.T

    def times(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """weight @ the pixels' part, and weight @ that of the z."""
        weight = weight.T.contiguous()
        X = weight.new_zeros(self.pixels, weight.shape[1])
        Z = weight.new_zeros(self.columns, weight.shape[1])
        for part in self.parts:
            own = weight[part.rows]
            X.index_add_(0, part.pixels, part.affine.X.T @ own)
            Z.index_add_(0, part.columns, part.affine.Z.T @ own)
        return X.T, Z.T


class Spread(Affine):
    """The rows of blocks, written out over the whole image and all z only when asked for."""

    def __init__(self, blocks: Blocks, like: Tensor) -> None:
        self.all = blocks
        self.c, self.e = like.new_zeros(blocks.count), like.new_zeros(blocks.count)
        for part in blocks.parts:
            self.c[part.rows], self.e[part.rows] = part.affine.c, part.affine.e

    @property
    def blocks(self) -> Blocks | None:
        """The blocks, where computing with them pays."""
        return self.all if self.all.pays else None

    def at(self, x: Tensor) -> Tensor:
        """X x, without writing X out."""
        found = self.c.new_empty(self.all.count)
        for part in self.all.parts:
            found[part.rows] = part.affine.X @ x[part.pixels]
        return found

    @cached_property
    def X(self) -> Tensor:  # type: ignore[override]
        """The pixels' part."""
        X = self.c.new_zeros(self.all.count, self.all.pixels)
        for part in self.all.parts:
            X[part.rows[:, None], part.pixels] = part.affine.X
        return X

    @cached_property
    def Z(self) -> Tensor:  # type: ignore[override]
        """The part of the z."""
        Z = self.c.new_zeros(self.all.count, self.all.columns)
        for part in self.all.parts:
            Z[part.rows[:, None], part.columns] = part.affine.Z
        return Z
