"""Images side by side, for the verifiers that are quicker that way.

How a library sums depends on the shape of what it is given, hence in the last bits on how many
images there are and on the row in which one stands. So a block always has `BLOCK` rows, an image
always stands in the same one, and the rows of images that are not asked about are filled up: an
image's bounds and points do not depend on who else is in its block, on the number of workers or on
where a run was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.verdict import Verdict
from maar.regions import Ball

# Images. More would be quicker still, by a little; but what is begun together is lost together.
BLOCK = 32

T = TypeVar("T")


@runtime_checkable
class Quick(Protocol):
    """A verifier that can answer queries of one block together, for a fraction of the time."""

    def together(self, block: Block) -> list[Verdict]:
        """One verdict for each query of the block, in order."""
        ...


@dataclass(frozen=True, eq=False)
class Block:
    """Queries about one network and one eps, each in its row of a batch."""

    queries: Sequence[Query]
    rows: list[int]
    """Of the queries, in the batch."""
    x: Tensor
    """[BLOCK, *shape]"""
    y: Tensor
    """[BLOCK]"""

    @staticmethod
    def of(queries: Sequence[Query]) -> Block:
        """Queries of different rows; a query's row is `row_of` its seed, the image's index."""
        rows = [row_of(query.seed) for query in queries]
        if len(set(rows)) < len(rows):
            raise ValueError(f"images {[query.seed for query in queries]} are not of one block")
        first = queries[0]
        x = first.x.repeat(BLOCK, *(1 for _ in first.x.shape[1:]))
        y = torch.full((BLOCK,), first.y)
        for row, query in zip(rows, queries, strict=True):
            x[row], y[row] = query.x[0], query.y
        return Block(queries, rows, x, y)

    @property
    def network(self) -> Network:
        """The network that all queries ask about."""
        return self.queries[0].network

    def ball(self, dtype: torch.dtype = torch.float32) -> Ball:
        """The balls of all rows."""
        return self.queries[0].around(self.x.to(dtype))


def row_of(index: int) -> int:
    """The row in which an image stands."""
    return index % BLOCK


def blocks_of(items: Iterable[tuple[int, T]]) -> list[list[T]]:
    """Things of images, with their indices, put together by blocks; the order stays otherwise."""
    found: dict[int, list[T]] = {}
    for index, item in items:
        found.setdefault(index // BLOCK, []).append(item)
    return list(found.values())
