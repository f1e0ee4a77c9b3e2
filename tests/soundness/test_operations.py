"""Bounds of random graphs over every operation, and bugs that these checks must catch."""

from __future__ import annotations

import functools

import pytest
import torch
from operation_nets import SMOOTH, kinds_used, random_graph
from torch import Tensor, nn

from maar.domains import interval, linear_map, rewriting, smooth
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Bound, Corners
from maar.domains.crown import Crown
from maar.domains.graph import Graph, compile_network, trace
from maar.domains.hybrid_zonotope import HybridZonotope
from maar.domains.interval import Interval
from maar.domains.linear_map import Mapped
from maar.domains.zonotope import Zonotope
from maar.networks.maps import (
    Abs,
    Clip,
    Combine,
    Dag,
    Maximum,
    Minimum,
    Move,
    Product,
    Reciprocal,
    Scale,
)
from maar.networks.operations import OPERATIONS

SEEDS = range(40)
EVERYWHERE = [
    Interval(True),
    Crown(rounding=True),
    Crown("interval", True),
    AlphaCrown("last", steps=2, rounding=True),
]
PIECEWISE = [Zonotope(rounding=True), AlphaCrown("all", steps=2, rounding=True)]
NO_MODULE_OF_TORCH = {nn.Softmax, nn.LogSoftmax}


@functools.cache
def case(seed: int) -> tuple[nn.Sequential, Tensor, Tensor, Tensor]:
    """A network, its boxes, and points of them [points, 3, *shape]."""
    net, lb, ub = random_graph(seed, smooth=seed % 2 == 0)
    generator = torch.Generator().manual_seed(seed)
    e = torch.rand(24, *lb.shape, generator=generator)
    e[8:] = (e[8:] > 0.5).float()
    return net, lb, ub, torch.lerp(lb, ub, e).clamp(lb, ub)


def graph_values(graph: Graph, x: Tensor) -> list[Tensor]:
    values = [x]
    for node in graph.nodes:
        values.append(node.op(*(values[i] for i in node.inputs)))
    return values


@torch.no_grad()
def check_rewriting(seed: int) -> None:
    """The graph computes what the network does."""
    net, _, _, points = case(seed)
    double = net.double()
    try:
        x = points[0].double()
        out = graph_values(trace(double, x.shape[1:]), x)[-1]
        torch.testing.assert_close(out, double(x), rtol=1e-9, atol=1e-9)
    finally:
        net.float()


@torch.no_grad()
def check_bound(bound: Bound, seed: int, compiled: bool = True) -> None:
    """Every point's outputs, and inputs of ReLUs, are within the bounds: no tolerance."""
    net, lb, ub, points = case(seed)
    graph = (compile_network if compiled else trace)(net, lb.shape[1:])
    found = bound(graph, Corners(lb, ub))
    exact = compile_network(net, lb.shape[1:], torch.float64)
    for x in points:
        values = graph_values(exact, x.double())
        _within(found.lb, values[-1].flatten(1), found.ub)
        for i, (low, high) in zip(graph.relus, found.pre, strict=True):
            _within(low, values[graph.nodes[i].inputs[0]], high)


def _within(lb: Tensor, value: Tensor, ub: Tensor) -> None:
    # (the truth is computed in float64, whose own error is a billionth of the slack; a point's
    # bounds may have no slack at all where nothing rounds)
    tiny = 1e-12 * (1 + value.abs())
    assert bool((lb.double() <= value + tiny).all())
    assert bool((value - tiny <= ub.double()).all())


@pytest.mark.parametrize("seed", SEEDS)
def test_rewriting_is_exact(seed):
    check_rewriting(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_enclose(seed):
    check_all(seed)


def check_all(seed: int) -> None:
    net = case(seed)[0]
    bounds = list(EVERYWHERE)
    if not kinds_used(net) & set(SMOOTH):
        bounds += PIECEWISE
    for bound in bounds:
        check_bound(bound, seed)
    check_bound(Crown(rounding=True), seed, compiled=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_bounds_enclose_more(seed):
    check_rewriting(seed)
    check_all(seed)


@pytest.mark.parametrize("seed", range(1, 20, 2))
def test_training_domains(seed):
    """Zonotopes that are carried forwards; rounding is not accounted for."""
    net, lb, ub, points = case(seed)
    for bound in (Zonotope(), HybridZonotope()):
        with torch.no_grad():
            found = bound(trace(net, lb.shape[1:]), Corners(lb, ub))
            slack = 1e-4 * (1 + found.ub.abs())
            for x in points:
                out = net(x)
                assert bool((found.lb - slack <= out).all())
                assert bool((out <= found.ub + slack).all())


def test_the_graphs_have_every_operation():
    used = set().union(*(kinds_used(case(seed)[0]) for seed in SEEDS))
    graphs = {kind for kind, operation in OPERATIONS.items() if operation.kind != "last"}
    missing = {kind.__name__ for kind in graphs - used}
    assert missing <= {"Normalize", "Residual", "Reciprocal"}, missing


BUGS = {
    "a coefficient keeps its sign": (
        Mapped,
        "linear",
        lambda self, x, absolute=False: linear_map.LINEAR[type(self.layer)](self.layer, x, False),
    ),
    "a shift is lost": (Mapped, "shift", lambda self, rank: None),
    "1 - a is a": (
        rewriting,
        "_sloped",
        lambda add, slope, x, ok: add(rewriting.Combine((slope, slope)), x, add(nn.ReLU(), x)),
    ),
    "max forgets": (rewriting, "_max_ends", lambda a, b, c, d: (torch.maximum(a, c), b)),
    "min forgets": (rewriting, "_min_ends", lambda a, b, c, d: (c, torch.minimum(b, d))),
    "abs of a box around 0": (
        rewriting,
        "_abs_ends",
        lambda a, b: (torch.minimum(a.abs(), b.abs()), torch.maximum(-a, b)),
    ),
    "lines without the inner extreme": (
        smooth,
        "_extreme",
        lambda curve, s, a, b: tuple(
            torch.stack([curve.f(a) - s * a, curve.f(b) - s * b]).aminmax(dim=0)
        ),
    ),
}


def _plant_transposed(self: Mapped, rows: Tensor, shape: torch.Size) -> Tensor:
    return -_real_transposed(self, rows, shape)


_real_transposed = Mapped.transposed
BUGS["a transposed map with another sign"] = (Mapped, "transposed", _plant_transposed)


def two(layer: nn.Module, *inputs: int) -> nn.Sequential:
    """A layer of two inputs: of the two coordinates, of x and the layer before, ..."""
    picks = [Move(torch.tensor([place])) for place in (0, 1)]
    return nn.Sequential(Dag([*picks, layer], [(0,), (0,), inputs or (1, 2)]))


def less(layer: nn.Module, slope: float) -> nn.Sequential:
    """f(x) - slope x, whose extremes are not at the ends."""
    return nn.Sequential(Dag([layer, Combine((1.0, -slope))], [(0,), (1, 0)]))


FIXED = [
    (two(Maximum()), [-1.0, -0.5], [0.5, 0.7]),
    (two(Minimum()), [-1.0, -0.5], [0.5, 0.7]),
    (two(Product()), [-1.0, -0.5], [0.5, 2.0]),
    (nn.Sequential(Scale(shift=torch.tensor([1.5])), Reciprocal()), [-1.0], [1.0]),
    (less(nn.Sigmoid(), 0.1), [-6.0], [5.0]),
    (less(nn.Sigmoid(), 0.0672), [0.1], [5.0]),
    (less(nn.Tanh(), 0.0219), [-5.0], [-0.2]),
    (less(nn.Tanh(), 0.5), [-0.3], [4.0]),
    (less(Abs(), 0.4), [-0.7], [0.3]),
    (less(Clip(-0.2, 0.5), 0.4), [-0.7], [0.8]),
]


@torch.no_grad()
def check_fixed() -> None:
    """The operations that have a rule of their own, by themselves, on a grid of points."""
    for net, low, high in FIXED:
        lb, ub = torch.tensor([low]), torch.tensor([high])
        grid = torch.linspace(0, 1, 201 if len(low) == 1 else 21, dtype=torch.float64)
        axes = [torch.lerp(a.double(), b.double(), grid) for a, b in zip(lb[0], ub[0], strict=True)]
        points = torch.cartesian_prod(*axes).view(-1, len(low))
        out = net(points)
        for bound in EVERYWHERE:
            found = bound(compile_network(net, lb.shape[1:]), Corners(lb, ub))
            _within(found.lb, out, found.ub)


def test_operations_by_themselves():
    check_fixed()


def check_every_seed() -> None:
    check_fixed()
    for seed in SEEDS:
        check_rewriting(seed)
        check_all(seed)


def check_intervals() -> None:
    for seed in SEEDS:
        check_bound(Interval(True), seed)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name, monkeypatch):
    where, attribute, bug = BUGS[name]
    monkeypatch.setattr(where, attribute, bug)
    with pytest.raises((AssertionError, RuntimeError)):
        check_every_seed()


def test_interval_size_is_needed(monkeypatch):
    """Without the account of rounding a point's bounds miss the real value."""
    monkeypatch.setattr(interval, "gamma", lambda n, dtype: 0.0)
    with pytest.raises(AssertionError):
        check_intervals()
