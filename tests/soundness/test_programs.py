"""Programs of tiny networks against the truth: all ReLU patterns, an LP each.

In both directions: no bound is above the true minimum, and with every ReLU exact it is found.
"""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from random_nets import make_case
from test_exact import true_minima
from torch import nn

from maar.certification import VERIFIERS
from maar.certification.cascade import Cascade
from maar.certification.milp import choose
from maar.certification.milp.encoding import Encoder
from maar.certification.milp.refine import refine
from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.solvers import SOLVERS
from maar.certification.verdict import Status
from maar.domains.bound import Corners, Problem, margins
from maar.domains.graph import compile_network
from maar.domains.learned_zonotope import LearnedZonotope
from maar.domains.reduced.network import reduce

FREE = ("highs", "scip")
PROGRAMS = ("lp", "milp_last", "milp_conv", "milp")


def fully_connected() -> tuple[nn.Sequential, tuple[int, ...]]:
    layers = (nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    return nn.Sequential(nn.Flatten(), *layers), (1, 1, 3)


def convolutional() -> tuple[nn.Sequential, tuple[int, ...]]:
    layers = (nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Conv2d(2, 2, (1, 2)), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3)), (1, 2, 3)


NETS = {
    "fully connected": (fully_connected, 0.4),
    "fully connected, wide": (fully_connected, 3.0),
    "convolutional": (convolutional, 0.5),
}
SEEDS = range(3)


@functools.cache
def setting(name: str, seed: int):
    """The reduced network, the rows, CROWN's bounds and the true minima."""
    make, radius = NETS[name]
    net, shape = make()
    case = make_case(net, shape, (radius,), seed)
    exact = case.net_in(torch.float64)
    C = margins(case.y, case.classes, torch.float64)
    graph = compile_network(exact, shape, torch.float64)
    network, rows = reduce(Problem(graph, case.box(torch.float64), C))
    truth = true_minima(exact, case.lb[0].double(), case.ub[0].double(), C[0])
    return case, network, rows, network.lower(rows), torch.from_numpy(truth)


@pytest.mark.parametrize("solver", FREE)
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("seed", SEEDS)
def test_from_crown_to_the_truth(name, seed, solver):
    _, network, rows, crown, truth = setting(name, seed)
    encoder, solve = Encoder(network), SOLVERS[solver]().solve
    # (which ReLUs are exact is no part of the proof: chosen at DeepZ's slopes or at learned ones)
    learned = LearnedZonotope(10, period=4) if seed % 2 else None
    for j in range(len(rows)):
        row = rows[torch.tensor([j])]
        least = float(truth[j])
        near = 1e-5 * (1 + abs(least))
        lp, last, conv, whole = (
            solve(encoder.lowest(row, exact).model, 30.0)
            for exact in (
                choose.none(network),
                choose.last(network),
                choose.last(network) | choose.last_convolution(network, row, 2, learned),
                choose.all_(network),
            )
        )
        # (what is true, and a program that says no more than it must)
        assert crown[j] - near < lp.bound <= last.bound + near
        assert last.bound <= conv.bound + near
        assert conv.bound <= whole.bound + near
        assert least - near < whole.bound <= least + 1e-9
        assert max(lp.bound, last.bound, conv.bound) <= least + 1e-9
        assert whole.objective == pytest.approx(least, abs=near)


def test_the_networks_are_worth_it():
    """Some LPs are not the truth, some are better than CROWN, and last layers matter."""
    looser = better = last_better = 0
    for name in NETS:
        for seed in SEEDS:
            _, network, rows, crown, truth = setting(name, seed)
            for j in range(len(rows)):
                encoder, row = Encoder(network), rows[torch.tensor([j])]
                solve = SOLVERS["highs"]().solve
                lp = solve(encoder.lowest(row, choose.none(network)).model).bound
                last = solve(encoder.lowest(row, choose.last(network)).model).bound
                looser += lp < float(truth[j]) - 1e-3
                better += lp > float(crown[j]) + 1e-3
                last_better += last > lp + 1e-3
    assert min(looser, better, last_better) >= 3


@pytest.mark.parametrize("seed", SEEDS)
def test_refined_bounds_enclose_and_are_no_looser(seed):
    case, network, _, _, _ = setting("convolutional", seed)
    before = network.boxes.pre()[1]
    known = refine(network, SOLVERS["highs"](), seconds=60.0)
    lb, ub = known[1]
    prefix = nn.Sequential(*copy.deepcopy(case.net)[:3], nn.Flatten()).double()
    C = torch.eye(lb.numel(), dtype=torch.float64)
    box = case.lb[0].double(), case.ub[0].double()
    least = torch.from_numpy(true_minima(prefix, *box, C))
    most = -torch.from_numpy(true_minima(prefix, *box, -C))
    assert bool((lb.flatten() <= least + 1e-9).all())
    assert bool((ub.flatten() >= most - 1e-9).all())
    assert bool((lb >= before[0]).all())
    assert bool((ub <= before[1]).all())
    assert all(known[k][0].equal(network.boxes.pre()[k][0]) for k in (0, 2))


def question(name: str, seed: int, least: float, eps: float = 0.3):
    """A query whose least margin is made `least`, nearly, by the last layer's bias."""
    make, _ = NETS[name]
    net, shape = make()
    case = make_case(net, shape, (0.0,), seed)
    x = case.lb.clamp(0, 1)
    y = int(case.net(x).argmax())
    for _ in range(2):
        double = copy.deepcopy(case.net).double()
        C = margins(torch.tensor([y]), 3, torch.float64)[0]
        box = ((x.double() - eps).clamp(min=0)[0], (x.double() + eps).clamp(max=1)[0])
        truth = float(true_minima(double, *box, C).min())
        with torch.no_grad():
            case.net[-1].bias[y] += least - truth
    return Query.of(Network(case.net, shape), x, y, eps, seed)


@pytest.mark.parametrize("refinement", ["none", "lp"])
@pytest.mark.parametrize("name", ["fully connected", "convolutional"])
@pytest.mark.parametrize("seed", range(2))
def test_a_robust_image_is_verified_and_another_never(name, seed, refinement):
    for least in (1e-2, 1e-3, -1e-3, -1e-2):
        query = question(name, seed, least)
        for which in PROGRAMS:
            verifier = VERIFIERS[which](refinement=refinement)
            settled = Cascade((verifier,)).settle(query)
            if least > 0:
                assert settled.status is not Status.FALSIFIED
            else:
                assert settled.status is not Status.VERIFIED
                assert min(settled.lb.values(), default=-1.0) < least + 1e-4
            if which == "milp":
                wanted = Status.VERIFIED if least > 0 else Status.FALSIFIED
                assert settled.status is wanted


@pytest.mark.parametrize("solver", FREE)
def test_a_tie_is_neither(solver):
    """A least margin far below a solver's tolerance proves nothing."""
    for seed in range(3):
        query = question("fully connected", seed, 0.0)
        settled = Cascade((VERIFIERS["milp"](solver=solver),)).settle(query)
        assert settled.status is not Status.VERIFIED or min(settled.lb.values()) < 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_as_wide_as_their_error(seed):
    """With e = 0.05 a bound holds for every network whose rows are off by so much."""
    case, network, rows, _, truth = setting("fully connected", seed)
    layers = [copy.copy(layer) for layer in network.layers]
    layers[0].rows = copy.copy(layers[0].rows)
    layers[0].rows.e = layers[0].rows.e + 0.05
    encoder = Encoder(replace_layers(network, layers))
    C = margins(case.y, case.classes, torch.float64)[0]
    for j in range(len(rows)):
        row = copy.copy(rows[torch.tensor([j])])
        row.e = row.e + 0.25
        bound = SOLVERS["highs"]().solve(encoder.lowest(row, choose.all_(network)).model).bound
        assert bound <= float(truth[j]) - 0.25 + 1e-9
        for shift in (-0.05, 0.05):
            other = case.net_in(torch.float64)
            with torch.no_grad():
                other[1].bias[network.layers[0].index] += shift
            box = case.lb[0].double(), case.ub[0].double()
            assert bound <= float(true_minima(other, *box, C[j : j + 1])[0]) - 0.25 + 1e-6


def replace_layers(network, layers):
    other = copy.copy(network)
    other.layers = layers
    return other


def test_tiny_entries_are_dropped_and_paid_for(monkeypatch):
    """Here everything up to 0.2 is tiny, and the bound is still true."""
    monkeypatch.setattr("maar.certification.milp.encoding.DROPPED", 0.2)
    for seed in SEEDS:
        _, network, rows, _, truth = setting("fully connected", seed)
        encoder = Encoder(network)
        for j in range(len(rows)):
            model = encoder.lowest(rows[torch.tensor([j])], choose.all_(network)).model
            assert abs(model.cost[model.cost != 0]).min(initial=1.0) > 0.2
            assert SOLVERS["highs"]().solve(model).bound <= float(truth[j]) + 1e-9


def by_hand(weights, biases, lb, ub):
    """A network of the given layers, and its reduced form with the row -y_0."""
    layers: list[nn.Module] = []
    for weight, bias in zip(weights, biases, strict=True):
        layer = nn.Linear(len(weight[0]), len(weight)).double()
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.copy_(torch.tensor(bias))
        layers += [layer, nn.ReLU()]
    graph = compile_network(nn.Sequential(*layers[:-1]), (len(lb),), torch.float64)
    box = Corners(*(torch.tensor([side], dtype=torch.float64) for side in (lb, ub)))
    return reduce(Problem(graph, box, -torch.ones(1, 1, 1, dtype=torch.float64)))


@pytest.mark.parametrize("exact", [choose.none, choose.all_])
def test_relus_that_are_needed_by_needed_ones_only(exact):
    """relu(2 relu(x) - 1) on [-1, 1]: the margin's row does not name the first ReLU."""
    network, row = by_hand([[[1.0]], [[2.0]], [[1.0]]], [[0.0], [-1.0], [0.0]], [-1.0], [1.0])
    assert network.columns == 2
    bound = SOLVERS["highs"]().solve(Encoder(network).lowest(row, exact(network)).model).bound
    assert -1.0 - 1e-5 < bound <= -1.0


def test_what_is_dropped_of_a_layer_widens_its_row(monkeypatch):
    """relu(0.1 (x_1 + x_2 + x_3) - 0.05) on [0, 1]^3, ten times."""
    weights, biases = [[[0.1] * 3], [[10.0]]], [[-0.05], [0.0]]
    network, row = by_hand(weights, biases, [0.0] * 3, [1.0] * 3)
    monkeypatch.setattr("maar.certification.milp.encoding.DROPPED", 0.2)
    model = Encoder(network).lowest(row, choose.all_(network)).model
    assert len(model.cost) == 3  # z, p and a: the pixels are gone
    assert SOLVERS["highs"]().solve(model).bound <= -2.5
