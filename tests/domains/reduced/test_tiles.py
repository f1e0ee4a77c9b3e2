"""Bounds in tiles and products in blocks: the same as over the whole image."""

import itertools
import math
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from maar.domains.bound import Corners, Problem, margins
from maar.domains.crown import Crown
from maar.domains.graph import compile_network
from maar.domains.reduced import blocks, linear, network
from maar.domains.reduced.ascent import Ascent, Point
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.near import Place
from maar.domains.reduced.network import TooLarge, reduce
from maar.domains.reduced.tiles import Tile
from maar.domains.rows import Rows, neurons
from maar.networks.layers import Normalize

SHAPE = (2, 16, 12)


@contextmanager
def tiling():
    """Tiles and blocks also where they do not pay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "SLOWER", 0)
        patch.setattr(blocks, "WORTH", 0)
        yield


@contextmanager
def without_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "WORTH", math.inf)
        yield


def plain():
    return [
        nn.Conv2d(2, 4, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(4, 5, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(5, 8, 4, 2, 1),
    ]


def with_scales():
    return [
        Normalize([0.5, 0.4], [0.3, 0.2]),
        nn.Conv2d(2, 3, 2, 1, 0),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(3, 4, 3, 1, 1, groups=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, (3, 1), (1, 2), (1, 0), groups=2),
    ]


def four_small_ones():
    return [
        nn.Conv2d(2, 2, 1, 2),
        nn.ReLU(),
        nn.Conv2d(2, 3, 2, 1, 1),
        nn.ReLU(),
        nn.Conv2d(3, 3, 2, 1, 1),
        nn.ReLU(),
        nn.Conv2d(3, 4, 2, 2, 0),
    ]


KINDS = [plain, with_scales, four_small_ones]


def made(kind, seed, radius, rounding=True, dtype=torch.float64):
    torch.manual_seed(seed)
    layers = [*kind(), nn.ReLU(), nn.Flatten()]
    size = nn.Sequential(*layers).eval()(torch.zeros(1, *SHAPE)).shape[1]
    net = nn.Sequential(*layers, nn.Linear(size, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    x = torch.rand(1, *SHAPE).to(dtype)
    graph = compile_network(net, SHAPE, dtype)
    return Problem(graph, Corners(x - radius, x + radius), margins(torch.tensor([0]), 3, dtype))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("radius", [0.0, 0.02, 0.1, 1.0])
def test_the_bounds_are_those_of_plain_crown(kind, radius, monkeypatch):
    # (a bound by `quick` makes CROWN choose other slopes)
    nothing = torch.tensor(-torch.inf), torch.tensor(torch.inf)
    monkeypatch.setattr(Tile, "quick", lambda tile: nothing)
    monkeypatch.setattr(network.Reduced, "quick", lambda reduced, rows: nothing)
    problem = made(kind, 3, radius)
    with tiling(), torch.no_grad():
        reduced, rows = reduce(problem, rounding=False)
        low = reduced.lower(rows)
    expected = Crown(upper=False)._batch(problem)
    # (an active neuron's upper bound is the interval's, which in the end may cost a little)
    near = {"atol": 1e-2 if radius == 1 else 1e-12}
    assert torch.allclose(torch.maximum(low, reduced.interval[0][0]), expected.lb[0], **near)
    if len(reduced.layers[0].index) and kind is not with_scales:
        assert len(reduced.near) == 2  # it was done in tiles
    for (lb, ub), (plain_lb, plain_ub) in zip(reduced.boxes.pre(), expected.pre, strict=True):
        # (of a stable neuron only the bound that settles it counts)
        assert torch.equal(lb.clamp(max=0) * (ub > 0) != 0, plain_lb.clamp(max=0) * (ub > 0) != 0)
        both = (lb < 0) & (ub > 0)
        assert torch.allclose(lb[both], plain_lb[both], **near)
        assert torch.allclose(ub[both], plain_ub[both], **near)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_are_those_of_the_backward_pass(kind):
    with tiling(), torch.no_grad():
        reduced, _ = reduce(made(kind, 5, 0.05), rounding=True)
        graph = reduced.graph
        for k, layer in enumerate(reduced.layers):
            value = graph.nodes[graph.relus[k]].inputs[0]
            # As it was when this layer was made.
            before = network.Reduced(
                graph, reduced.boxes, reduced.layers[:k], reduced.centre, reduced.radius
            )
            unit = neurons(graph.shapes[value], layer.index, None, torch.float64)
            expected = before.carry(value, unit, together=1)
            for name in ("X", "Z", "c"):
                assert torch.allclose(getattr(layer.rows, name), getattr(expected, name)), name
            assert bool((layer.rows.e >= 0).all())


@pytest.mark.parametrize("kind", KINDS)
def test_products_in_blocks(kind):
    with tiling(), torch.no_grad():
        reduced, _ = reduce(made(kind, 7, 0.1), rounding=True)
        for layer in reduced.layers[:2]:
            rows = layer.rows
            assert rows.blocks is not None
            weight = torch.randn(4, len(rows), dtype=torch.float64)
            X, Z = rows.blocks.times(weight)
            assert torch.allclose(X, weight @ rows.X)
            assert torch.allclose(Z, weight @ rows.Z)
            part = torch.arange(len(rows))[-2:]
            for cut, whole in zip(
                vars(rows[part]).values(), (rows.X, rows.Z, rows.c), strict=False
            ):
                assert torch.equal(cut, whole[part])
            assert torch.equal(Affine.joined([rows, -rows]).X, torch.cat([rows.X, -rows.X]))


def test_the_search_of_branches_in_blocks():
    """The same bounds and gradients with blocks and without."""
    with tiling(), torch.no_grad():
        reduced, rows = reduce(made(plain, 7, 0.1), rounding=True)
        row = rows[torch.tensor([0])]
        generator = torch.Generator().manual_seed(1)
        sign = torch.randint(-1, 2, (5, reduced.columns), generator=generator).double()
        slope, price = torch.rand(2, 5, reduced.columns, generator=generator).double()
        point = Point(sign, slope, price, torch.ones(5, 1).double())
        low, gradients = Ascent(reduced, row, torch.float64)._pass(point)
    with without_blocks(), torch.no_grad():
        expected, others = Ascent(reduced, row, torch.float64)._pass(point)
    assert torch.allclose(low, expected)
    for mine, other in zip(gradients, others, strict=True):
        assert torch.allclose(mine, other)


def test_gradients_go_through_blocks():
    with tiling():
        with torch.no_grad():
            reduced, rows = reduce(made(plain, 7, 0.1), rounding=True)
            rows = rows[torch.zeros(linear.MANY, dtype=torch.long)]
        slopes = [
            torch.full((1, len(layer.index)), 0.4, dtype=torch.float64, requires_grad=True)
            for layer in reduced.layers
        ]
        found = torch.autograd.grad(reduced.lower(rows, slopes).sum(), slopes)
    with without_blocks():
        expected = torch.autograd.grad(reduced.lower(rows, slopes).sum(), slopes)
    for mine, other in zip(found, expected, strict=True):
        assert torch.allclose(mine, other)
        assert bool(mine.any())


def test_float32_is_refused_where_long_sums_lose_too_much():
    with tiling(), torch.no_grad(), pytest.raises(TooLarge, match="rounding"):
        reduce(made(plain, 3, 0.1, dtype=torch.float32), rounding=True, thrifty=True)


def test_a_place_knows_what_is_outside():
    shape = torch.Size((1, 6, 6))
    place = Place(0, 3, 2, 5)
    for top, left in itertools.product(range(-3, 6), range(-3, 6)):
        rows = Rows(torch.ones(1, 1, 2, 2), None, torch.tensor([[top, left]]))
        ys = {y for y in (top, top + 1) if 0 <= y < 6}
        xs = {x for x in (left, left + 1) if 0 <= x < 6}
        fits = not ys or not xs or (ys <= {0, 1, 2} and xs <= {2, 3, 4})
        if fits:
            place.require(rows, shape)
            inside = torch.zeros(1, 3, 3)
            for y, x in itertools.product(ys, xs):
                inside[0, y, x - 2] = 1
            assert torch.equal(place.write(rows), inside.flatten()[None])
        else:
            with pytest.raises(ValueError, match="not within"):
                place.require(rows, shape)
