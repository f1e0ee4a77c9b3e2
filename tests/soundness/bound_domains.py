"""The list of domains, one row each. A new bound gets its row here, and is tested like the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Bound, Enclosure, Problem
from maar.domains.crown import Crown
from maar.domains.graph import Graph
from maar.domains.hybrid_zonotope import HybridZonotope
from maar.domains.interval import Interval
from maar.domains.learned_zonotope import LearnedZonotope
from maar.domains.reduced import local
from maar.domains.reduced.network import reduce
from maar.domains.zonotope import Zonotope


@dataclass(frozen=True)
class Domain:
    """`make(rounding, graph)` builds the bound; most do not look at the network."""

    name: str
    make: Callable[[bool, Graph], Bound]

    def __repr__(self) -> str:
        return self.name


def _free_slopes(rounding: bool, graph: Graph) -> Bound:
    generator = torch.Generator().manual_seed(5)
    # A little below 0 and above 1 too: those must be cut.
    slopes = tuple(
        (1.4 * torch.rand(graph.shapes[i + 1], generator=generator) - 0.2).to(graph.dtype)
        for i in graph.relus
    )
    return Zonotope(slopes, rounding)


class _Grouped(AlphaCrown):
    """The inner bounds in groups wherever there are any, and returned with the outer ones."""

    def _one(self, problem: Problem) -> Enclosure:
        network, rows = reduce(problem, self.rounding)
        low, high = network.bounds(rows)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "WORTH", 0)
            low, network = self.improve(network, rows, low[0])
        pre = network.boxes.pre()
        for (lb, ub), layer in zip(pre, network.layers, strict=True):
            lb.view(-1)[layer.index], ub.view(-1)[layer.index] = layer.lb, layer.ub
        return Enclosure(low[None], high, pre)


DOMAINS = (
    Domain("interval", lambda r, _: Interval(r)),
    Domain("zonotope", lambda r, _: Zonotope(rounding=r)),
    Domain("zonotope free slopes", _free_slopes),
    Domain("learned_zonotope", lambda r, _: LearnedZonotope(3, rounding=r)),
    Domain("crown", lambda r, _: Crown(rounding=r)),
    Domain("crown interval", lambda r, _: Crown("interval", r)),
    Domain("crown lower only", lambda r, _: Crown(rounding=r, upper=False)),
    Domain("crown chunked", lambda r, _: Crown(rounding=r, budget=1)),
    Domain("alpha_crown last", lambda r, _: AlphaCrown("last", steps=3, rounding=r)),
    Domain("alpha_crown all", lambda r, _: AlphaCrown("all", steps=3, rounding=r)),
    Domain("alpha_crown shared", lambda r, _: AlphaCrown("all", "targets", 3, rounding=r)),
    Domain("alpha_crown grouped", lambda r, _: _Grouped("all", steps=3, rounding=r)),
    # a budget that no reduced network fits into: the plain way
    Domain("alpha_crown plain", lambda r, _: AlphaCrown("last", steps=3, rounding=r, budget=1)),
)

# For training only: they enclose, but do not account for rounding, so certification refuses them.
WITHOUT_ROUNDING = (
    Domain("hybrid_zonotope", lambda _, __: HybridZonotope(terms=3)),
    Domain("hybrid_zonotope no terms", lambda _, __: HybridZonotope(terms=0)),
)
