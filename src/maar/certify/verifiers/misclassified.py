"""The image itself: what the network gets wrong needs no attack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from maar.certify.query import Query
from maar.certify.verdict import UNKNOWN, Status, Verdict


@dataclass(frozen=True)
class Misclassified:
    """One forward pass, as accuracy counts it."""

    name: ClassVar[str] = "misclassified"

    @torch.no_grad()
    def __call__(self, query: Query) -> Verdict:
        """MISCLASSIFIED, with the image as its own counterexample, or UNKNOWN."""
        z = query.network.net(query.x)
        if not bool(z.isfinite().all()):
            # argmax of a NaN is an accident; this image has no answer to be robust about.
            return Verdict(Status.ERROR, error="the network's scores are NaN or infinite")
        if int(z.argmax()) == query.y:
            return UNKNOWN
        return Verdict(Status.MISCLASSIFIED, counterexample=query.x)
