"""The zonotope with learned slopes, the paper's linear relaxation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from maar.certification.query import Query
from maar.certification.verdict import UNKNOWN, Verdict
from maar.certification.verifiers.bound import climb
from maar.domains.bound import Problem
from maar.domains.learned_zonotope import LearnedZonotope
from maar.domains.reduced.network import TooLarge, reduce


@dataclass(frozen=True)
class ZonotopeVerifier:
    """DeepZ's slopes in float32, then slopes learned for what is open, in float64.

    COLT has 500 iterations and a learning rate of 0.1 that falls to a tenth every 100 (`period`),
    as in preset `paper`. Without iterations it is the plain zonotope.
    """

    name: ClassVar[str] = "zonotope"
    iterations: int = 100
    lr: float = 0.1
    period: int = 0
    seconds: float = field(default=math.inf, repr=False)

    def __call__(self, query: Query) -> Verdict:
        """VERIFIED or UNKNOWN, with the margins."""
        try:
            return climb(query, self._lower)
        except TooLarge:
            return UNKNOWN

    def _lower(self, query: Query, dtype: torch.dtype) -> Tensor:
        problem = Problem(query.network.graph(dtype), query.ball(dtype), query.margins(dtype))
        with torch.no_grad():
            network, rows = reduce(problem, rounding=True, parallel=True)
            start = network.bounds(rows)[0][0]
        if dtype == torch.float32:
            return start
        learned = LearnedZonotope(
            self.iterations,
            self.lr,
            rounding=True,
            period=self.period,
            seconds=query.left(self.seconds),
        )
        return learned.learn(network, rows, start)
