"""Branch and bound against exact minima: rational numbers, no tolerance at all."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from polygons import (
    at,
    cut,
    least,
    lowest_maximum,
    moved_to,
    network,
    pieces,
    pieces_with_outputs,
    problem,
)

from maar.certification.milp.leaf import LeafProgram
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Corners, Problem
from maar.domains.graph import compile_network
from maar.domains.reduced.ascent import Ascent, Point
from maar.domains.reduced.branching import Branching
from maar.domains.reduced.linear import Split
from maar.domains.reduced.network import Reduced, reduce

CASES = [(seed, wild) for seed in range(5) for wild in (0, 3)]


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request):
    seed, wild = request.param
    net = network(seed, wild)
    x = torch.rand(2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    lb, ub = (x - 0.4).clamp(0, 1), (x + 0.4).clamp(0, 1)
    return seed, wild, problem(net, lb, ub), list(pieces(net, lb, ub))


@pytest.fixture(scope="module", params=[(0, 0), (1, 0), (3, 2)], ids=str)
def crossed(request):
    """Around the origin, where most ReLUs are unstable."""
    seed, wild = request.param
    net, ub = network(seed, wild, (5, 5, 4)), torch.ones(2, dtype=torch.float64)
    reduced, rows = problem(net, -ub, ub)
    assert reduced.columns >= 7
    return seed, wild, (reduced, rows), list(pieces(net, -ub, ub))


def test_no_branchs_bound_is_above_the_truth(case):
    """For slopes in [0, 1], prices from tiny to huge, and signs good or bad."""
    seed, _, (reduced, rows), found = case
    chance = torch.Generator().manual_seed(seed)
    sizes, count = [len(layer.index) for layer in reduced.layers], 40

    def rand(size):
        return torch.rand(count, size, generator=chance, dtype=torch.float64)

    part = torch.rand(count, 1, generator=chance)
    signs = [(3 * rand(n)).floor() - 1 for n in sizes]
    signs = [sign * (rand(sign.shape[1]) < part) for sign in signs]
    prices = [10 ** (8 * rand(n) - 4) * (rand(n) < 0.5) for n in sizes]
    splits = [Split(*pair) for pair in zip(signs, prices, strict=True)]
    slopes = [rand(n) if seed % 2 else rand(n).round() for n in sizes]
    row = rows[torch.zeros(count, dtype=torch.long)]
    lb, X, weight = reduced.lower_in(row, slopes, splits)
    assert X.shape == (count, 2)
    assert weight.shape == (count, sum(sizes))
    held = 0
    for b in range(count):
        for polygon, pre, margin in found:
            for lines, layer, sign in zip(pre, reduced.layers, signs, strict=True):
                for place, s in zip(layer.index.tolist(), sign[b].tolist(), strict=True):
                    polygon = cut(polygon, lines[place], int(s)) if s and polygon else polygon
            for point in polygon:
                held += 1
                assert Fraction(float(lb[b])) <= at(margin, point)
    assert held


def test_without_splits_it_is_crown(case):
    _, _, (reduced, rows), _ = case
    zeros = [torch.zeros(1, len(layer.index), dtype=torch.float64) for layer in reduced.layers]
    slopes = [zero + 0.3 for zero in zeros]
    (low, _, _) = reduced.lower_in(rows, slopes, [Split(zero, zero) for zero in zeros])
    torch.testing.assert_close(low, reduced.lower(rows, slopes))


SETTINGS = {
    "plain": (Branching(), 30),
    "no steps": (Branching(together=2, steps=0, first_steps=0), 30),
    "long steps": (Branching(steps=2, first_steps=2, slope_rate=3.0, price_rate=1e5), 4),
}
GAPS = (0.0, 1e-12, -1e-12, 1e-7, -1e-7, 1e-2)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_proof_is_never_above_the_truth(case, name):
    """The row is moved so that its exact minimum is zero, just above or just below."""
    seed, wild, (reduced, rows), found = case
    truth = least(found)
    branching, most = SETTINGS[name]
    for gap in (1e-2, GAPS[seed % 5]):
        moved, minimum = moved_to(rows, truth, gap)
        rounds = itertools.count(1)
        proof = branching.prove(
            reduced, moved, LeafProgram(reduced, moved), 60.0, lambda _, n=rounds: next(n) >= most
        )
        assert not math.isnan(proof.lb)
        assert proof.lb == -math.inf or Fraction(proof.lb) <= minimum
        if name == "plain" and gap == 1e-2 and not wild:
            assert proof.lb > 0


class Nonsense:
    """Instead of an ascent's answers: numbers of every kind, and some that are none."""

    def __init__(self, seed):
        self.chance = torch.Generator().manual_seed(seed)

    def like(self, value):
        found = 10 ** (6 * torch.rand(value.shape, generator=self.chance) - 3)
        found *= torch.randint(-1, 2, value.shape, generator=self.chance)
        odd = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-45, 3e38])
        which = torch.randint(0, 4 * len(odd), value.shape, generator=self.chance)
        # Not in every branch: where one is no number, nothing would be claimed at all.
        which += len(odd) * (torch.rand(len(value), 1, generator=self.chance) < 0.7)
        return torch.where(which < len(odd), odd[which % len(odd)], found)

    def climb(self, point, *others):
        return Point(point.sign, *map(self.like, point[1:]))

    def low(self, point):
        return self.like(point.slope)[:, 0]


def test_the_search_may_say_what_it_likes(crossed, monkeypatch):
    """The bound is one for any slopes and prices, even for those that are no numbers."""
    seed, _, (reduced, rows), found = crossed
    nonsense = Nonsense(seed)
    monkeypatch.setattr(Ascent, "climb", lambda self, *args: nonsense.climb(*args))
    monkeypatch.setattr(Ascent, "low", lambda self, *args: nonsense.low(*args))
    bound = Reduced.lower_in

    def checked(self, rows, slopes, splits):
        slope, price = torch.cat(slopes, 1), torch.cat([split.price for split in splits], 1)
        assert bool(((slope >= 0) & (slope <= 1)).all())
        assert bool(((price >= 0) & price.isfinite()).all())
        assert slope.dtype == price.dtype == rows.X.dtype == torch.float64
        return bound(self, rows, slopes, splits)

    monkeypatch.setattr(Reduced, "lower_in", checked)
    for gap in (1e-2, 1.0):
        moved, minimum = moved_to(rows, least(found), gap)
        rounds = itertools.count(1)
        proof = Branching().prove(
            reduced, moved, LeafProgram(reduced, moved), 60.0, lambda _, n=rounds: next(n) >= 8
        )
        assert proof.lb == -math.inf or Fraction(proof.lb) <= minimum


def test_what_a_row_may_be_off_by_is_taken_off(crossed):
    _, _, (reduced, rows), found = crossed
    moved, minimum = moved_to(rows, least(found), 0.5)
    moved.e = moved.e + 0.25
    rounds = itertools.count(1)
    proof = Branching().prove(
        reduced, moved, LeafProgram(reduced, moved), 60.0, lambda _: next(rounds) >= 10
    )
    assert proof.lb == -math.inf or Fraction(proof.lb) <= minimum - Fraction(1, 4)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_branch_that_overflows_proves_nothing(crossed, bad, monkeypatch):
    _, _, (reduced, rows), _ = crossed
    bound = Reduced.lower_in

    def overflowing(self, rows, slopes, splits):
        low, *others = bound(self, rows, slopes, splits)
        signs = torch.cat([split.sign for split in splits], 1)
        is_split = (signs != 0).any(1)
        is_first = (signs * (signs != 0).cumsum(1).eq(1)).sum(1) > 0
        low = torch.where(is_split, torch.where(is_first, bad, 1.0), -1.0)
        return low, *others

    monkeypatch.setattr(Reduced, "lower_in", overflowing)
    row, rounds = rows[torch.tensor([0])], itertools.count(1)
    assert (
        Branching()
        .prove(reduced, row, LeafProgram(reduced, row), 60.0, lambda _: next(rounds) >= 20)
        .lb
        <= 0
    )


def test_bounds_that_alpha_crown_leaves_behind_enclose_every_relus_input(crossed):
    """And what branch and bound proves with them is never above the truth."""
    seed, wild, (reduced, rows), found = crossed
    far = rows[torch.tensor([0])]
    far.c = far.c - 1e6  # so far from proved that every step is taken
    _, network = AlphaCrown(rounding=True).improve(reduced, far, reduced.lower(far))
    ahead = 0
    for k, (old, layer) in enumerate(zip(reduced.layers, network.layers, strict=True)):
        assert bool((layer.lb >= old.lb).all() & (layer.ub <= old.ub).all())
        assert layer.rows is old.rows
        ahead += int((layer.lb > old.lb).sum() + (layer.ub < old.ub).sum())
        for n, place in enumerate(layer.index.tolist()):
            value = [at(pre[k][place], point) for polygon, pre, _ in found for point in polygon]
            assert Fraction(float(layer.lb[n])) <= min(value)
            assert Fraction(float(layer.ub[n])) >= max(value)
    assert ahead or wild  # (of the wild ones, some have nothing to gain)
    for gap in (1e-2, GAPS[seed % 5]):
        moved, minimum = moved_to(rows, least(found), gap)
        rounds = itertools.count(1)
        proof = Branching().prove(
            network, moved, LeafProgram(network, moved), 60.0, lambda _, n=rounds: next(n) >= 10
        )
        assert proof.lb == -math.inf or Fraction(proof.lb) <= minimum


# Several rows at once: somewhere none of them is positive, or everywhere one is

ROWS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -0.5]], dtype=torch.float64)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("nonsense", [False, True])
def test_a_conjunction_is_refuted_only_where_it_has_no_point(seed, count, nonsense, monkeypatch):
    """The rows are moved together so that their exact lowest maximum is about `gap`."""
    net, ub = network(seed, 0, (5, 4)), torch.ones(2, dtype=torch.float64)
    if nonsense:
        odd = Nonsense(seed)
        monkeypatch.setattr(Ascent, "climb", lambda self, *args: odd.climb(*args))
    C = ROWS[:count]
    graph = compile_network(net, (2,), torch.float64)
    reduced, rows = reduce(Problem(graph, Corners(-ub[None], ub[None]), C[None]))
    found = list(pieces_with_outputs(net, -ub, ub))
    truth = lowest_maximum(found, C, [Fraction(0)] * count)
    for gap in (0.05, 1e-9, 0.0, -1e-9, -0.05):
        moved = rows[torch.arange(count)]
        moved.c = rows.c + (gap - float(truth))
        pairs = zip(moved.c.tolist(), rows.c.tolist(), strict=True)
        minimum = lowest_maximum(found, C, [Fraction(a) - Fraction(b) for a, b in pairs])
        rounds = itertools.count(1)
        proof = Branching().prove(
            reduced, moved, LeafProgram(reduced, moved), 60.0, lambda _, n=rounds: next(n) >= 40
        )
        assert minimum > 0 or not proof.lb > 0
        if gap == 0.05 and not nonsense:
            assert proof.lb > 0
