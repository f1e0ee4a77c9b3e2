"""Interval bounds: milliseconds, and enough for networks trained with them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from maar.certification.block import Block
from maar.certification.network import PRECISIONS
from maar.certification.verdict import Verdict, proves
from maar.certification.verifiers.bound import BoundVerifier
from maar.domains.bound import Bound, margins
from maar.domains.interval import Interval

INTERVAL = Interval(rounding=True)
# What float32 loses to rounding is less than this share of a bound's width; float64 does not help
# an image that lacks more. (If it did after all, `crown` has the same interval bounds in float64.)
ROUNDING = 0.01


@dataclass(frozen=True)
class IntervalVerifier(BoundVerifier):
    """`maar.domains.interval`."""

    bound: Bound = INTERVAL

    def together(self, block: Block) -> list[Verdict]:
        """For each query VERIFIED or UNKNOWN, with the margins."""
        best = [dict.fromkeys(query.targets, -torch.inf) for query in block.queries]
        left = list(range(len(best)))
        for dtype in PRECISIONS:
            low, width = self._bounds(block, dtype)
            hopeful = []
            for n in left:
                query, row = block.queries[n], block.rows[n]
                places = [k - (k > query.y) for k in query.targets]
                for k, lb in zip(query.targets, low[row, places].tolist(), strict=True):
                    best[n][k] = max(best[n][k], lb)
                lacks = -low[row, places] > ROUNDING * width[row, places]
                if not all(map(proves, best[n].values())) and not bool(lacks.any()):
                    hopeful.append(n)
            left = hopeful
            if not left:
                break
        return [Verdict.bounded(lb) for lb in best]

    @torch.no_grad()
    def _bounds(self, block: Block, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The lower bounds of z_y - z_k for every k != y, and the width of what encloses these."""
        C = margins(block.y, block.network.classes, dtype)
        found = self.bound(block.network.graph(dtype), block.ball(dtype), C)
        return found.lb, found.ub - found.lb
