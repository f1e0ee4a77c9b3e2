"""Branch and bound against a fine grid over two pixels: never above the truth, and complete."""

import itertools
import math

import pytest
import torch
from torch import nn

from maar.certification.milp.leaf import LeafProgram
from maar.domains.bound import Corners, Problem, margins
from maar.domains.graph import compile_network
from maar.domains.reduced.ascent import Ascent, Point
from maar.domains.reduced.branching import Branching
from maar.domains.reduced.linear import Affine, Split
from maar.domains.reduced.network import reduce

GRID = 301


def network(seed, widths=(8, 8)):
    generator = torch.Generator().manual_seed(seed)
    sizes = (2, *widths, 3)
    layers = []
    for before, after in itertools.pairwise(sizes):
        layer = nn.Linear(before, after).double()
        with torch.no_grad():
            layer.weight.copy_(torch.randn(after, before, generator=generator))
            layer.bias.copy_(torch.randn(after, generator=generator))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def problem(net, x, eps):
    box = Corners((x - eps)[None], (x + eps)[None])
    graph = compile_network(net, (2,), torch.float64)
    reduced, rows = reduce(Problem(graph, box, margins(torch.tensor([0]), 3, torch.float64)))
    return reduced, rows


def grid(x, eps):
    line = torch.linspace(-1, 1, GRID, dtype=torch.float64) * eps
    return torch.cartesian_prod(x[0] + line, x[1] + line)


@pytest.mark.parametrize("seed", range(12))
def test_it_finds_the_minimum_from_below(seed):
    net, x = network(seed), torch.tensor([0.2, -0.3], dtype=torch.float64)
    reduced, rows = problem(net, x, 0.5)
    with torch.no_grad():
        z = net(grid(x, 0.5))
    for j in (0, 1):
        truth = (z[:, 0] - z[:, j + 1]).min().item()
        row = rows[torch.tensor([j])]
        proof = Branching().prove(reduced, row, LeafProgram(reduced, row), 20.0)
        assert proof.lb <= truth + 1e-9
        # Moved up or down until the least margin is just positive, or just not.
        for shift, provable in ((0.05 - truth, True), (-0.05 - truth, False)):
            moved = rows[torch.tensor([j])]
            moved.c = moved.c + shift
            found = Branching().prove(reduced, moved, LeafProgram(reduced, moved), 20.0)
            assert (found.lb > 0) == provable
            assert found.lb <= truth + shift + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_a_branchs_bound_holds_wherever_its_signs_do(seed):
    """For any slopes in [0, 1] and prices >= 0, good or bad."""
    net, x = network(seed), torch.tensor([0.1, 0.4], dtype=torch.float64)
    reduced, rows = problem(net, x, 0.5)
    chance = torch.Generator().manual_seed(seed)
    sizes = [len(layer.index) for layer in reduced.layers]
    count = 40
    row = rows[torch.zeros(count, dtype=torch.long)]
    signs = [torch.randint(-1, 2, (count, n), generator=chance).double() for n in sizes]
    signs = [s * (torch.rand(s.shape, generator=chance) < 0.3) for s in signs]
    slopes = [torch.rand(count, n, generator=chance, dtype=torch.float64) for n in sizes]
    prices = [torch.rand(count, n, generator=chance, dtype=torch.float64) * 3 for n in sizes]
    splits = [Split(*pair) for pair in zip(signs, prices, strict=True)]
    lb, _, _ = reduced.lower_in(row, slopes, splits)
    points = grid(x, 0.5)
    with torch.no_grad():
        first = net[0](points)
        second = net[2](net[1](first))
        value = net(points)
        value = value[:, 0] - value[:, 1]
    pre = [v[:, layer.index] for v, layer in zip((first, second), reduced.layers, strict=True)]
    seen = 0
    for b in range(count):
        inside = torch.ones(len(points), dtype=torch.bool)
        for v, sign in zip(pre, signs, strict=True):
            inside &= ((v * sign[b]) >= 0).all(1)
        seen += int(inside.sum())
        assert (value[inside] >= lb[b] - 1e-12).all()
    assert seen


def test_time_and_a_lookout_end_the_search():
    net, x = network(3), torch.tensor([0.2, -0.3], dtype=torch.float64)
    reduced, rows = problem(net, x, 0.5)
    row = rows[torch.tensor([0])]
    assert Branching().prove(reduced, row, LeafProgram(reduced, row), 0.0).lb == -math.inf
    shown = []
    row.c = row.c - 100
    Branching().prove(
        reduced,
        row,
        LeafProgram(reduced, row),
        20.0,
        lambda points: bool(shown.append(points)) or True,
    )
    (points,) = shown
    assert ((points - x).abs() <= 0.5 + 1e-9).all()


def test_a_network_without_unstable_relus():
    net, x = network(1), torch.tensor([0.2, -0.3], dtype=torch.float64)
    reduced, rows = problem(net, x, 1e-6)
    assert reduced.columns == 0
    row = rows[torch.tensor([0])]
    with torch.no_grad():
        z = net(x)
    assert Branching().prove(reduced, row, LeafProgram(reduced, row), 1.0).lb == pytest.approx(
        float(z[0] - z[1]), abs=1e-4
    )


def test_no_rows():
    reduced, rows = problem(network(0), torch.zeros(2, dtype=torch.float64), 0.5)
    none = rows[torch.tensor([], dtype=torch.long)]
    with pytest.raises(ValueError, match="at least one row"):
        Branching().prove(reduced, none, LeafProgram(reduced, none), 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_ascents_gradient_is_that_of_the_bound(seed):
    """By hand and by autograd, on signs, slopes and prices of all kinds."""
    net, x = network(seed, (7, 6, 5)), torch.tensor([0.1, 0.4], dtype=torch.float64)
    reduced, rows = problem(net, x, 0.7)
    chance = torch.Generator().manual_seed(seed)
    sizes = [len(layer.index) for layer in reduced.layers]
    count, columns = 30, sum(sizes)
    sign = torch.randint(-1, 2, (count, columns), generator=chance).double()
    sign *= torch.rand(sign.shape, generator=chance) < 0.5
    slope, price = (torch.rand(sign.shape, generator=chance, dtype=torch.float64) for _ in "ab")
    mix = torch.rand(count, 2, generator=chance, dtype=torch.float64)
    point = Point(sign, slope, price, mix)
    ascent = Ascent(reduced, rows, torch.float64)
    low, gradients = ascent._pass(point)
    values = [value.requires_grad_() for value in (slope, price, mix)]
    by_layer = [value.split(sizes, 1) for value in (sign, slope, price)]
    splits = [Split(*pair) for pair in zip(by_layer[0], by_layer[2], strict=True)]
    mixture = Affine(*(mix @ value for value in (rows.X, rows.Z, rows.c, rows.e)))
    lb, _, _ = reduced.lower_in(mixture, by_layer[1], splits)
    torch.testing.assert_close(low, lb)
    for mine, true in zip(gradients, torch.autograd.grad(lb.sum(), values), strict=True):
        torch.testing.assert_close(mine, true)
    assert torch.equal(ascent.low(Point(*(value.detach() for value in point))), low)


def test_an_ascent_only_ever_gains():
    net, x = network(1, (7, 6, 5)), torch.tensor([0.1, 0.4], dtype=torch.float64)
    reduced, rows = problem(net, x, 0.7)
    row = rows[torch.tensor([1])]
    row.c = row.c - 100  # far from proved: nobody rests
    ascent = Ascent(reduced, row, torch.float64)
    sign = torch.zeros(3, reduced.columns, dtype=torch.float64)
    sign[1, 0], sign[2, -1] = 1.0, -1.0
    slope, price = torch.full_like(sign, 0.5), torch.zeros_like(sign)
    start = Point(sign, slope, price, torch.ones(3, 1, dtype=torch.float64))
    before = ascent.low(start)
    after = ascent.low(ascent.climb(start, 20, 0.25, 0.15))
    assert bool((after > before).all())
    for steps in (0, 1):
        found = ascent.climb(start, steps, 1e9, 1e9)
        assert bool((ascent.low(found) >= before).all())
        assert bool((found.slope >= 0).all() & (found.slope <= 1).all())
        assert bool((found.price >= 0).all())
