"""The image itself: what the network gets wrong needs no attack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maar.certification.block import Block
from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.verdict import UNKNOWN, Status, Verdict


@dataclass(frozen=True)
class Misclassified:
    """One forward pass, as accuracy counts it."""

    name: ClassVar[str] = "misclassified"

    def __call__(self, query: Query) -> Verdict:
        """MISCLASSIFIED, with the image as its own counterexample, or UNKNOWN."""
        return _judge(query, _scores(query.network, query.x)[0])

    def together(self, block: Block) -> list[Verdict]:
        """The same for each query."""
        z = _scores(block.network, block.x)[block.rows]
        return [_judge(query, scores) for query, scores in zip(block.queries, z, strict=True)]


@torch.no_grad()
def _scores(network: Network, x: Tensor) -> Tensor:
    return network.net(x)


def _judge(query: Query, z: Tensor) -> Verdict:
    if not bool(z.isfinite().all()):
        # argmax of a NaN is an accident; this image has no answer to be robust about.
        return Verdict(Status.ERROR, error="the network's scores are NaN or infinite")
    if int(z.argmax()) == query.y:
        return UNKNOWN
    return Verdict(Status.MISCLASSIFIED, counterexample=query.x)
