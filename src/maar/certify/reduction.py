"""CROWN's reduced network of one image, built once and shared by the verifiers that need it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch
from torch import Tensor

from maar.bounds.bound import Problem
from maar.bounds.reduced import Affine, Reduced, TooLarge, reduce
from maar.certify.query import Query


@dataclass(frozen=True)
class Reduction:
    """The network, the rows z_y - z_k of the query's open classes, and CROWN's bounds of them."""

    reduced: Reduced
    rows: Affine
    lb: Tensor


@torch.no_grad()
def reduction(query: Query, dtype: torch.dtype) -> Reduction | None:
    """The reduction of the query's image in a precision, with rounding accounted for.

    None if so many ReLUs are unstable that it would not fit into memory, or not pay.
    """
    if query.memory.get("precision") != dtype:
        # Only the last one is kept: it may take gigabytes.
        query.memory.update(precision=dtype, targets=query.targets, reduction=None)
        problem = Problem(query.network.graph(dtype), query.ball(dtype), query.margins(dtype))
        with contextlib.suppress(TooLarge):
            reduced, rows = reduce(problem, rounding=True, thrifty=True)
            lb = reduced.bounds(rows)[0][0]
            query.memory["reduction"] = Reduction(reduced, rows, lb)
    whole: Reduction | None = query.memory["reduction"]
    if whole is None:
        return None
    keep = torch.tensor([query.memory["targets"].index(k) for k in query.targets])
    return Reduction(whole.reduced, whole.rows[keep], whole.lb[keep])
