"""Zonotopes with learned slopes: they improve, they stop, and they leave the network alone."""

import pytest
import torch
from torch import nn

from maar.core.errors import UsageError
from maar.domains.bound import Corners, Problem
from maar.domains.graph import compile_network
from maar.domains.learned_zonotope import LearnedZonotope
from maar.domains.reduced.network import reduce
from maar.domains.zonotope import Zonotope


@pytest.fixture
def two_wishes():
    """relu(x) - a x + 1/10 on [-1, 9/10] for a = 0.2 and 0.8; x passes through stable ReLUs.

    With slope s the bound is (s - a) x + 1/10: the first is proved for s in (0.09, 0.3), the second
    for s in (0.69, 0.9). DeepZ's s = 0.9 / 1.9 proves neither.
    """
    first, last = nn.Linear(1, 3), nn.Linear(3, 2)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0], [1.0], [-1.0]]))
        first.bias.copy_(torch.tensor([0.0, 9.0, 9.0]))
        last.weight.copy_(torch.tensor([[1.0, -0.1, 0.1], [1.0, -0.4, 0.4]]))
        last.bias.fill_(0.1)
    net = nn.Sequential(first, nn.ReLU(), last).double()
    one = torch.ones(1, 1, dtype=torch.float64)
    return net, Corners(-one, 0.9 * one)


@pytest.mark.parametrize("rounding", [False, True])
def test_it_finds_better_slopes(two_wishes, rounding):
    net, box = two_wishes
    plain = Zonotope(rounding=rounding)(net, box).lb
    # (of the first the interval bound, 0.1 - 0.9 * 0.2, is the better one)
    assert plain[0].tolist() == pytest.approx([-0.08, 0.1 - 0.9 * (0.8 - 0.9 / 1.9)])
    learned = LearnedZonotope(rounding=rounding)(net, box).lb
    assert bool((learned > 0).all())
    assert bool((learned <= 0.1 + 1e-7).all())


def test_a_row_gets_slopes_of_its_own_where_the_common_ones_fail(two_wishes):
    """Three iterations go down to the first row's slopes; the second row needs its own three."""
    net, box = two_wishes
    assert bool((LearnedZonotope(3)(net, box).lb > 0).all())
    assert bool((LearnedZonotope(2)(net, box).lb[:, 1] < 0).all())


def test_the_learning_rate_falls_by_period(two_wishes):
    """With a tenth of the rate after each iteration, three of them do not go far enough."""
    net, box = two_wishes
    assert bool((LearnedZonotope(3, period=3)(net, box).lb > 0).all())
    assert bool((LearnedZonotope(3, period=1)(net, box).lb[:, 1] < 0).all())
    with pytest.raises(UsageError, match="period = -1"):
        LearnedZonotope(period=-1)


def test_the_slopes_of_one_row(two_wishes):
    """Each wish has slopes of its own, which prove it; without iterations they are DeepZ's."""
    net, box = two_wishes
    problem = Problem(compile_network(net, (1,)), box, torch.eye(2, dtype=torch.float64)[None])
    with torch.no_grad():
        reduced, rows = reduce(problem, False, parallel=True)
    for wish, (low, high) in enumerate([(0.09, 0.3), (0.69, 0.9)]):
        row = rows[torch.tensor([wish])]
        (slope,) = LearnedZonotope().slopes(reduced, row)
        assert low < slope.item() < high
        (deepz,) = LearnedZonotope(0).slopes(reduced, row)
        assert deepz.item() == pytest.approx(0.9 / 1.9)


@pytest.mark.parametrize("rounding", [False, True])
def test_without_iterations_it_is_the_zonotope(residual_net, rounding):
    net, box = residual_net
    graph = compile_network(net, (1, 6, 6))
    plain, learned = (
        bound(graph, box)
        for bound in (Zonotope(rounding=rounding), LearnedZonotope(0, 0.1, rounding))
    )
    assert torch.equal(plain.lb, learned.lb)
    assert torch.equal(plain.ub, learned.ub)


def test_more_iterations_are_never_worse(residual_net):
    net, box = residual_net
    graph = compile_network(net, (1, 6, 6))
    plain, few, many = (LearnedZonotope(n)(graph, box).lb for n in (0, 2, 12))
    # (what is proved is left alone, however low above zero)
    assert bool((few >= plain).all())
    assert bool((many.clamp(max=0) >= few.clamp(max=0)).all())
    assert bool((many > plain + 0.01).any())


def test_it_stops_when_all_is_proved(residual_net, monkeypatch):
    net, box = residual_net
    plain = Zonotope()(compile_network(net, (1, 6, 6)), box)
    with torch.no_grad():
        net[-1].bias += 100
    proved = compile_network(net, (1, 6, 6))
    monkeypatch.setattr(torch.optim, "Adam", None)  # no step may be taken
    torch.testing.assert_close(LearnedZonotope()(proved, box).lb, plain.lb + 100)


def test_it_stops_when_time_is_up(residual_net, monkeypatch):
    net, box = residual_net
    graph = compile_network(net, (1, 6, 6))
    monkeypatch.setattr(torch.optim.Adam, "step", None)
    found = LearnedZonotope(seconds=0)(graph, box).lb
    torch.testing.assert_close(found, Zonotope()(graph, box).lb)


def test_the_network_and_the_callers_mode_are_left_alone(residual_net):
    net, box = residual_net
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with torch.no_grad():
        found = LearnedZonotope(2)(net, box)
        assert not torch.is_grad_enabled()
    assert not found.lb.requires_grad
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(p.grad is None and p.requires_grad for p in net.parameters())


@pytest.mark.parametrize(
    ("settings", "said"), [({"iterations": -1}, "iterations = -1"), ({"lr": 0.0}, "lr = 0.0")]
)
def test_settings_that_make_no_sense_are_refused(settings, said):
    with pytest.raises(UsageError, match=said):
        LearnedZonotope(**settings)
