"""Branch and bound is complete: every margin but zero is proved or refuted, as exact minima say.

Each network takes two pixels, so its least margin is known as a fraction (`polygons.py`). The
margin is moved until that minimum is just above or below zero, and the search has to tell which.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from polygons import least, moved_to, network, pieces, problem
from torch import nn

from maar.certification.cascade import Cascade
from maar.certification.milp.leaf import LeafProgram
from maar.certification.network import Network
from maar.certification.properties.decide import decide
from maar.certification.query import Query
from maar.certification.record import make_record
from maar.certification.replay import replay
from maar.certification.verdict import Status
from maar.certification.verifiers.bab import BranchAndBound
from maar.core.spec import Case, Condition, Property
from maar.domains.reduced import branching
from maar.domains.reduced.branching import Branching, Leaf

WIDTHS = ((5, 5, 4), (4, 4, 4, 3), (6, 4), (3, 3, 3, 3, 3))
# A search that splits only ReLUs with a coefficient gives up on these, with a margin of 1 %.
STUCK = (9, 10, 12, 25, 29, 58, 80, 98, 102, 118, 142)
ONE = torch.ones(2, dtype=torch.float64)


def make(seed: int) -> nn.Sequential:
    return network(seed, (0, 0, 2)[seed % 3], WIDTHS[seed % 4])


def settle(seed: int, part: float, settings: Branching | None = None) -> None:
    """Let branch and bound tell the sign of a least margin of so small a part of its size."""
    net = make(seed)
    reduced, rows = problem(net, -ONE, ONE)
    truth = least(pieces(net, -ONE, ONE))
    size = abs(float(truth)) + float(rows.X.abs().sum())
    row, minimum = moved_to(rows, truth, part * size)
    shift = float(minimum - truth)
    double = net.double()
    lowest = math.inf

    @torch.no_grad()
    def look(points: torch.Tensor) -> bool:
        nonlocal lowest
        assert bool((points.abs() <= 1 + 1e-9).all())
        z = double(points.clamp(-1, 1))
        lowest = min(lowest, float((z[:, 0] - z[:, 1]).min()) + shift)
        return lowest < 0

    proof = (settings or Branching()).prove(reduced, row, LeafProgram(reduced, row), 600.0, look)
    assert proof.lb == -math.inf or Fraction(proof.lb) <= minimum
    if part > 0:
        assert proof.lb > 0
        assert not proof.undecided
    else:
        assert not proof.lb > 0
        assert lowest < 0 or (part == 0 and proof.undecided)


@pytest.mark.parametrize("part", [1e-2, 1e-5, -1e-5, 0.0])
@pytest.mark.parametrize("seed", STUCK)
def test_where_the_bound_uses_no_unsplit_relu(seed, part):
    settle(seed, part)


@pytest.mark.parametrize("seed", range(1000, 1024))
def test_random_networks(seed):
    for part in (1e-2, 1e-5, -1e-5):
        settle(seed, part)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2300))
def test_more_random_networks(seed):
    for part in (1e-2, 1e-4, 1e-6, -1e-6, -1e-2):
        settle(seed, part)


@pytest.mark.parametrize("seed", [10, 12, 29, 80])
def test_depth_first_where_memory_is_short(seed):
    for part in (1e-2, -1e-5):
        settle(seed, part, Branching(room=0, together=3))


# The verifier and the step that users ask


def moved_net(seed: int, part: float) -> tuple[nn.Sequential, torch.Tensor, torch.Tensor, Fraction]:
    """A network on [0, 1]^2 with a least margin of about `part` of its size, and that margin."""
    net, lb, ub = make(seed), torch.zeros(2).double(), ONE
    truth = least(pieces(net, lb, ub))
    last = net[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        size = abs(float(truth)) + float(last.weight.abs().sum())
        last.bias[0] += part * size - float(truth)
    return net.eval(), lb, ub, least(pieces(net, lb, ub))


@pytest.mark.parametrize("part", [1e-3, -1e-3])
@pytest.mark.parametrize("seed", [*STUCK, *range(1100, 1110)])
def test_the_verifier_bab_settles_every_image(seed, part):
    net, _, _, truth = moved_net(seed, part)
    query = Query.of(Network(net, (2,)), torch.full((1, 2), 0.5), 0, 0.5)
    verdict = BranchAndBound()(query)
    assert verdict.status is (Status.VERIFIED if truth > 0 else Status.FALSIFIED)
    if verdict.counterexample is not None:
        replay(query, verdict.counterexample)
    else:
        assert Fraction(verdict.lb[1]) <= truth


@pytest.mark.parametrize("part", [1e-3, -1e-3])
@pytest.mark.parametrize("seed", [*STUCK, *range(1200, 1210)])
def test_the_step_branching_settles_every_condition_of_one_row(seed, part):
    net, lb, ub, truth = moved_net(seed, part)
    decision = decide(net, (2,), asked(lb, ub, [[1.0, -1.0]]), timeout=60, steps=["branching"])
    assert decision.verdict == ("unsat" if truth > 0 else "sat")


def asked(lb: torch.Tensor, ub: torch.Tensor, A: list[list[float]], b: Any = 0.0) -> Property:
    """Can all rows of A y be <= b?"""
    low, high = (tuple(Fraction(v) for v in side.tolist()) for side in (lb, ub))
    b = np.zeros(len(A)) + b
    condition = Condition(np.array(A), b, b)
    return Property(2, 2, (Case(lb.numpy(), ub.numpy(), low, high, (condition,)),))


def test_rows_that_exclude_each_other_are_refuted_together():
    """y_0 - y_1 <= -0.1 and y_1 - y_0 <= 0 exclude each other, but neither row is positive."""
    net = flat(second=-1.0)
    prop = asked(torch.zeros(2).double(), ONE, [[1.0, -1.0], [-1.0, 1.0]], [-0.1, 0.0])
    decision = decide(net, (2,), prop, timeout=5, steps=["branching"])
    assert decision.verdict == "unsat"
    held = asked(torch.zeros(2).double(), ONE, [[1.0, -1.0], [-1.0, 1.0]], [10.0, 10.0])
    assert decide(net, (2,), held, timeout=5, steps=["branching"]).verdict != "unsat"


def flat(second: float = 1.0) -> nn.Sequential:
    """y_0 = |x_0 - 1/2|, y_1 = 0: the least margin is 0; with -1, y_0 = x_0 - 1/2."""
    first, last = nn.Linear(2, 2), nn.Linear(2, 2)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        first.bias.copy_(torch.tensor([-0.5, 0.5]))
        last.weight.copy_(torch.tensor([[1.0, second], [0.0, 0.0]]))
        last.bias.zero_()
    return nn.Sequential(first, nn.ReLU(), last).eval()


def test_a_margin_of_zero_is_unknown_with_the_reason():
    query = Query.of(Network(flat(), (2,)), torch.tensor([[0.375, 0.5]]), 0, 0.25)
    verdict = BranchAndBound()(query)
    assert verdict.status is Status.UNKNOWN
    assert verdict.reason == "the margin of class 1 is too near zero to be told from it in float64"
    record = make_record(0, 0, Cascade((BranchAndBound(),)).settle(query))
    assert (record["verdict"], record["reason"]) == ("unknown", f"bab: {verdict.reason}")
    prop = asked(torch.zeros(2).double(), ONE, [[1.0, -1.0]])
    decision = decide(flat(), (2,), prop, timeout=20, steps=["branching"])
    assert (decision.verdict, decision.witness) == ("unknown", None)
    assert "too near zero" in decision.reason


def test_time_that_is_up_is_no_reason():
    net, _, _, _ = moved_net(9, 1e-3)
    query = Query.of(Network(net, (2,)), torch.full((1, 2), 0.5), 0, 0.5)
    assert BranchAndBound(seconds=1e-9)(query).reason == ""


def test_a_network_without_unstable_relus_is_decided_by_the_lowest_corner():
    linear = nn.Linear(2, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(2))
        linear.bias.zero_()
    prop = asked(torch.zeros(2).double(), ONE, [[1.0, -1.0]])
    assert decide(nn.Sequential(linear).eval(), (2,), prop, steps=["branching"]).verdict == "sat"


# The checks must bite: typical bugs, each of which some case above must catch


def one_child_only(monkeypatch):
    put = branching.Search._put
    sides = itertools.count()
    monkeypatch.setattr(
        branching.Search,
        "_put",
        lambda self, branch: put(self, branch) if next(sides) % 2 == 0 else None,
    )


def gives_up_without_a_coefficient(monkeypatch):
    choose = branching.Search._choose

    def without(self, sign, best, keep):
        used = (self.height * best.weight[keep] * (sign[keep] == 0) != 0).any(1)
        if not bool(used.all()):
            self.stuck = -1.0
        return choose(self, sign, best, keep)

    monkeypatch.setattr(branching.Search, "_choose", without)


def no_leaf_is_solved(monkeypatch):
    monkeypatch.setattr(LeafProgram, "__call__", lambda self, sign, seconds: None)


def a_changed_leaf(change):
    def bug(monkeypatch):
        call = LeafProgram.__call__

        def changed(self, sign, seconds):
            leaf = call(self, sign, seconds)
            return None if leaf is None else change(leaf)

        monkeypatch.setattr(LeafProgram, "__call__", changed)

    return bug


def a_leaf_is_proved_by_the_solver(monkeypatch):
    """The bound of a leaf is taken from the program, whatever its prices are worth."""
    monkeypatch.setattr(
        branching.Search,
        "_solved",
        lambda self, sign, best, leaves: [best.lb.__setitem__(b, 1.0) for b in leaves] and [],
    )


def signs_cost_nothing(monkeypatch):
    """A price is paid for a sign that the other child has."""
    splits = branching.Search._splits
    monkeypatch.setattr(
        branching.Search,
        "_splits",
        lambda self, sign, price: [
            branching.Split(split.sign, -split.price) for split in splits(self, sign, price)
        ],
    )


BUGS = {
    "one child only": one_child_only,
    "gives up without a coefficient": gives_up_without_a_coefficient,
    "no leaf is solved": no_leaf_is_solved,
    "prices of 0": a_changed_leaf(lambda leaf: Leaf(0 * leaf.price, leaf.points, leaf.mix)),
    "prices in the wrong units": a_changed_leaf(
        lambda leaf: Leaf(leaf.price / 50, leaf.points, leaf.mix)
    ),
    "points are kept back": a_changed_leaf(
        lambda leaf: Leaf(leaf.price, 0 * leaf.points, leaf.mix)
    ),
    "a leaf is proved by the solver": a_leaf_is_proved_by_the_solver,
    "prices of the wrong sign": signs_cost_nothing,
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug, monkeypatch):
    BUGS[bug](monkeypatch)
    caught = 0
    for seed, part in itertools.product(STUCK, (1e-2, 1e-5, -1e-5)):
        try:
            settle(seed, part)
        except AssertionError:
            caught += 1
            break
    assert caught
