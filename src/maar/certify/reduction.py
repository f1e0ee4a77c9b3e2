"""CROWN's reduced network of one image, built once and shared by the verifiers that need it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from maar.bounds.reduced import Affine, Reduced, reduce
from maar.certify.query import Query


@dataclass(frozen=True)
class Reduction:
    """The network, the rows z_y - z_k of the query's open classes, and CROWN's bounds of them."""

    reduced: Reduced
    rows: Affine
    lb: Tensor


@torch.no_grad()
def reduction(query: Query, dtype: torch.dtype) -> Reduction:
    """The reduction of the query's image in a precision, with rounding accounted for."""
    if dtype not in query.memory:
        graph = query.network.graph(dtype)
        reduced, rows = reduce(graph, query.ball(dtype), query.margins(dtype), rounding=True)
        query.memory[dtype] = query.targets, Reduction(reduced, rows, reduced.bounds(rows)[0][0])
    targets, whole = query.memory[dtype]
    keep = torch.tensor([targets.index(k) for k in query.targets])
    return Reduction(whole.reduced, whole.rows[keep], whole.lb[keep])
