"""CROWN's bounds of one image, computed once and shared by the verifiers that build on them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from maar.certification.query import Query
from maar.domains.bound import Pair, Problem
from maar.domains.crown import Crown
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced, TooLarge, reduce

# The same bounds without a reduced network, for those that do not fit into memory.
PLAIN = Crown(rounding=True, upper=False)


@dataclass(frozen=True)
class Reduction:
    """An image's reduced network and the rows z_y - z_k of the query's open classes."""

    network: Reduced
    rows: Affine


@dataclass(frozen=True)
class Found:
    """CROWN's lower bounds of the query's open classes, and what they came from."""

    lb: Tensor
    pre: tuple[Pair, ...]
    """The bounds on each ReLU's input."""
    reduction: Reduction | None
    """None where plain CROWN alone fitted into memory."""

    def of(self, rows: Tensor) -> Found:
        """The same for some of the classes."""
        part = self.reduction and Reduction(self.reduction.network, self.reduction.rows[rows])
        return Found(self.lb[rows], self.pre, part)


def crown(query: Query, dtype: torch.dtype) -> Found:
    """CROWN on the query's image in a precision, with rounding accounted for."""
    if query.memory.get("precision") != dtype:
        # Only the last one is kept: it may take gigabytes.
        query.memory.clear()
        query.memory.update(precision=dtype, targets=query.targets, found=_crown(query, dtype))
    rows = [query.memory["targets"].index(k) for k in query.targets]
    return query.memory["found"].of(torch.tensor(rows))


def remember(query: Query, found: Found) -> None:
    """Leave something better than CROWN's for the verifiers to come: of the query's classes."""
    query.memory.update(targets=query.targets, found=found)


@torch.no_grad()
def reduced(query: Query, dtype: torch.dtype, found: Found) -> Found:
    """The same with a reduced network even where that does not pay; raises `TooLarge`."""
    if found.reduction is not None:
        return found
    return replace(
        found, reduction=Reduction(*reduce(_problem(query, dtype, found.pre), rounding=True))
    )


@torch.no_grad()
def _crown(query: Query, dtype: torch.dtype) -> Found:
    problem = _problem(query, dtype)
    with contextlib.suppress(TooLarge):
        network, rows = reduce(problem, rounding=True, thrifty=True)
        lb = torch.maximum(network.lower(rows), network.interval[0][0])
        return Found(lb, network.boxes.pre(), Reduction(network, rows))
    if dtype == torch.float32:
        # Long sums: what float32 would prove, at half the time of float64, is next to nothing.
        return Found(torch.full((len(query.targets),), -torch.inf), (), None)
    found = PLAIN.enclose(problem)
    return Found(found.lb[0], found.pre, None)


def _problem(query: Query, dtype: torch.dtype, known: tuple[Pair, ...] | None = None) -> Problem:
    graph = query.network.graph(dtype)
    return Problem(graph, query.ball(dtype), query.margins(dtype), known)
