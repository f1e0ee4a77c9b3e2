"""CROWN on the image's reduced network, which stays for the verifiers after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from maar.bounds.crown import Crown
from maar.certify.query import Query
from maar.certify.reduction import reduction
from maar.certify.verdict import Verdict
from maar.certify.verifiers.bound import climb

# For networks with so many unstable ReLUs that plain CROWN is quicker: the same bounds.
CROWN = Crown(rounding=True, upper=False)


@dataclass(frozen=True)
class CrownVerifier:
    """CROWN, with the ReLUs' inputs bounded by CROWN too."""

    name: ClassVar[str] = "crown"

    def __call__(self, query: Query) -> Verdict:
        """VERIFIED or UNKNOWN, with the margins."""
        return climb(query, _lower)


@torch.no_grad()
def _lower(query: Query, dtype: torch.dtype) -> Tensor:
    found = reduction(query, dtype)
    if found is not None:
        return found.lb
    return CROWN(query.network.graph(dtype), query.ball(dtype), query.margins(dtype)).lb[0]
