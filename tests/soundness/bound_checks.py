"""The checks that every domain must pass, on one case each. test_teeth.py turns bugs loose on them.

A failing check is an AssertionError that says where: which output or which ReLU's input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from bound_domains import Domain
from bound_truth import exactly, fractions, hard_points, values
from random_nets import Case
from torch import Tensor, nn

from maar.domains.bound import Bound, Corners, Enclosure, Pair, margins
from maar.domains.graph import Graph, compile_network, trace
from maar.domains.interval import Interval
from maar.domains.reduced import blocks, network, places
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced
from maar.domains.reduced.tiles import Tile


@dataclass(frozen=True)
class How:
    """The ways in which one domain may be asked."""

    dtype: torch.dtype = torch.float32
    rounding: bool = False
    compiled: bool = False
    specified: bool = True  # margins instead of outputs


def ask(domain: Domain, case: Case, how: How) -> Enclosure:
    """The domain's enclosure for a case."""
    net = case.net_in(how.dtype)
    graph = (compile_network if how.compiled else trace)(net, case.shape)
    bound = domain.make(how.rounding, graph)
    given = graph if how.compiled else net
    with torch.no_grad():
        return bound(given, case.box(how.dtype), specification(case, how))


def specification(case: Case, how: How) -> Tensor | None:
    return margins(case.y, case.classes, how.dtype) if how.specified else None


@dataclass(frozen=True)
class Truth:
    """What the network does at some points of a case: every value is [points, N, ...], float64."""

    pre: list[Tensor]
    out: Tensor

    @staticmethod
    def at(case: Case, points: Tensor) -> Truth:
        assert bool(((case.lb <= points) & (points <= case.ub)).all())
        with torch.no_grad():
            pre, out = values(case.net_in(torch.float64), points.flatten(0, 1).double())
        split = points.shape[:2]
        return Truth([value.unflatten(0, split) for value in pre], out.unflatten(0, split))


def encloses(domain: Domain, case: Case, how: How, truth: Truth | None = None) -> None:
    """Every hard point's outputs and ReLU inputs are within the bounds.

    With rounding in float32, no tolerance: the truth is computed in float64, whose own error is
    a billionth of a unit of the float32 bound's slack.
    """
    assert not how.rounding or how.dtype == torch.float32, "use `encloses_exactly`"
    found = ask(domain, case, how)
    if truth is None:
        truth = Truth.at(case, hard_points(case))
    tolerance = 0.0 if how.rounding else _tolerance(case, how.dtype)
    out = truth.out
    if (C := specification(case, How(torch.float64, specified=how.specified))) is not None:
        out = (C @ out.unsqueeze(-1)).squeeze(-1)
    _within("an output", found.lb, out, found.ub, tolerance)
    for k, ((lb, ub), value) in enumerate(zip(found.pre, truth.pre, strict=True)):
        _within(f"an input of ReLU {k}", lb, value, ub, tolerance)


def encloses_exactly(domain: Domain, case: Case, how: How, points: Tensor) -> None:
    """As `encloses` with rounding, in any dtype, against rational arithmetic: no tolerance."""
    assert how.rounding
    found = ask(domain, case, how)
    C = specification(case, how)
    net = case.net_in(torch.float64)
    for point in points:
        for n, image in enumerate(point):
            pre, out = exactly(net, image)
            if C is not None:
                out = fractions(C[n]) @ out
            _within_exactly("the output", found.lb[n], out, found.ub[n])
            for k, ((lb, ub), value) in enumerate(zip(found.pre, pre, strict=True)):
                _within_exactly(f"the input of ReLU {k}", lb[n], value, ub[n])


def encloses_a_finer_box(domain: Domain, compiled: bool) -> None:
    """A float64 box around numbers that are no float32, for a float32 network."""
    # (behind an affine layer its slack would hide how the box was rounded)
    net = nn.Sequential(nn.ReLU(), nn.Linear(2, 2, bias=False)).requires_grad_(False)
    net[1].weight.copy_(torch.eye(2))
    point = torch.tensor([[0.1, 0.7]], dtype=torch.float64)  # one is rounded up, one down
    graph = (compile_network if compiled else trace)(net, (2,))
    with torch.no_grad():
        found = domain.make(True, graph)(graph, Corners(point, point))
    _within("an output", found.lb, point, found.ub, 0.0)
    ((lb, ub),) = found.pre
    _within("an input of ReLU 0", lb, point, ub, 0.0)


def largest(case: Case) -> float:
    """The largest number that a bound on this case has to add up."""
    net = case.net_in(torch.float64)
    with torch.no_grad():
        found = Interval()(net, case.box(torch.float64))
    sizes = [bound.abs().max() for pair in found.pre for bound in pair]
    sizes += [found.lb.abs().max(), found.ub.abs().max(), case.lb.abs().max(), case.ub.abs().max()]
    return float(torch.stack([size.double() for size in sizes]).max())


def _tolerance(case: Case, dtype: torch.dtype) -> float:
    """What rounding may do on a net of this size to a bound that does not account for it."""
    return 30 * torch.finfo(dtype).eps * (1 + largest(case))


def _within(what: str, lb: Tensor, value: Tensor, ub: Tensor, tolerance: float) -> None:
    below = lb.double() - value
    above = value - ub.double()
    worst = float(torch.maximum(below, above).max())
    # (NaN compares false)
    assert worst <= tolerance, f"{what} leaves its bounds by {worst:.3g} (allowed {tolerance:.3g})"


def _within_exactly(what: str, lb: Tensor, value: np.ndarray, ub: Tensor) -> None:
    low, high = fractions(lb), fractions(ub)
    assert bool((low <= value).all()), f"{what} is below its bound by {float((low - value).max())}"
    assert bool((value <= high).all()), (
        f"{what} is above its bound by {float((value - high).max())}"
    )


def no_looser(a: Enclosure, b: Enclosure, tolerance: float = 0.0) -> None:
    """Every bound of `a` is at least as tight as that of `b`."""
    pairs = [((a.lb, a.ub), (b.lb, b.ub)), *zip(a.pre, b.pre, strict=True)]
    for k, (mine, theirs) in enumerate(pairs):
        what = "the outputs" if k == 0 else f"ReLU {k - 1}"
        gap = torch.maximum(theirs[0] - mine[0], mine[1] - theirs[1])
        assert float(gap.max()) <= tolerance, f"looser by {float(gap.max()):.3g} at {what}"


def same(a: Enclosure, b: Enclosure, tolerance: float) -> None:
    """Two enclosures agree everywhere."""
    no_looser(a, b, tolerance)
    no_looser(b, a, tolerance)


@contextmanager
def no_shortcut() -> Iterator[None]:
    """Without the reduced network's quick test, and with both bounds of stable neurons too.

    Else a neuron's box depends on whether the test or one bound sufficed: bounds compare only so.
    """

    def says_nothing(reduced: Reduced | None, rows: Affine) -> Pair:
        nothing = torch.full_like(rows.c, torch.inf)
        return -nothing, nothing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reduced, "quick", says_nothing)
        patch.setattr(Tile, "quick", lambda tile: says_nothing(None, tile.rows))
        for user in (network, places):
            patch.setattr(user, "settled", _both_bounds)
        yield


def _both_bounds(rows: Affine, pair: Pair, lower: Callable[[Affine], Tensor]) -> Pair:
    """What `settled` does, without guesses."""
    (lb, ub), is_open = pair, (pair[0] < 0) & (pair[1] > 0)
    lb = torch.where(is_open, torch.maximum(lb, lower(rows)), lb)
    return lb, torch.where(is_open, torch.minimum(ub, -lower(-rows)), ub)


@contextmanager
def composing(always: bool) -> Iterator[None]:
    """Compose rows with those of the active neurons below always, or never, not only if faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reduced, "_worth_composing", lambda reduced, k, count: always)
        yield


@contextmanager
def tiling() -> Iterator[None]:
    """Bound convolutions in tiles, and compute in blocks, also where that does not pay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "SLOWER", 0)
        patch.setattr(blocks, "WORTH", 0)
        yield


def graph_of(case: Case, dtype: torch.dtype = torch.float64) -> Graph:
    """The case's network, compiled."""
    return compile_network(case.net, case.shape, dtype)


def bounds_of(bound: Bound, case: Case, dtype: torch.dtype = torch.float64) -> Enclosure:
    """The bound's margins on the compiled network."""
    how = How(dtype)
    with torch.no_grad():
        return bound(graph_of(case, dtype), case.box(dtype), specification(case, how))
