"""alpha-CROWN: it improves, it stops, and it leaves the network alone."""

import pytest
import torch
from torch import nn

from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Corners
from maar.domains.crown import Crown
from maar.domains.graph import compile_network


@pytest.fixture
def half_of_x():
    """relu(x) - x/2 + 1/10 = |x|/2 + 1/10 on [-1, 9/10]; x passes as relu(x + 9), which is stable.

    CROWN takes slope 0 below relu(x), since 9/10 < 1: -x/2 + 1/10 >= -0.35. With slope 1/2 the
    bound is the truth.
    """
    first, last = nn.Linear(1, 3), nn.Linear(3, 1)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0], [1.0], [-1.0]]))
        first.bias.copy_(torch.tensor([0.0, 9.0, 9.0]))
        last.weight.copy_(torch.tensor([[1.0, -0.25, 0.25]]))
        last.bias.fill_(0.1)
    net = nn.Sequential(first, nn.ReLU(), last).double()
    one = torch.ones(1, 1, dtype=torch.float64)
    return net, Corners(-one, 0.9 * one)


@pytest.mark.parametrize("slopes", ["last", "all"])
@pytest.mark.parametrize("rounding", [False, True])
def test_it_finds_better_slopes(half_of_x, slopes, rounding):
    """Any slope in (0.39, 0.6) proves f > 0, and then it stops."""
    net, box = half_of_x
    assert Crown(rounding=rounding)(net, box).lb.item() == pytest.approx(-0.35)
    assert 0 < AlphaCrown(slopes, rounding=rounding)(net, box).lb.item() <= 0.1 + 1e-7


def test_without_steps_it_is_crown(residual_net):
    net, box = residual_net
    graph = compile_network(net, (1, 6, 6))
    crown = Crown()(graph, box)
    alpha = AlphaCrown("last", steps=0)(graph, box)
    torch.testing.assert_close(alpha.lb, crown.lb)
    torch.testing.assert_close(alpha.ub, crown.ub)


@pytest.mark.parametrize("share", ["none", "targets"])
@pytest.mark.parametrize("slopes", ["last", "all"])
def test_more_steps_are_never_worse(residual_net, slopes, share):
    net, box = residual_net
    graph = compile_network(net, (1, 6, 6))
    few = AlphaCrown(slopes, share, steps=2)(graph, box).lb
    many = AlphaCrown(slopes, share, steps=12)(graph, box).lb
    assert bool((many >= few).all())
    assert bool((many > Crown()(graph, box).lb).any())


def test_only_open_rows_are_worked_on(residual_net, monkeypatch):
    """Rows that CROWN proves already keep CROWN's bound; nothing is done if all are proved."""
    net, box = residual_net
    graph = compile_network(net, (1, 6, 6))
    crown = Crown()(graph, box)
    with torch.no_grad():
        net[-1].bias += 100
    proved = compile_network(net, (1, 6, 6))
    monkeypatch.setattr(torch.optim, "Adam", None)  # no step may be taken
    torch.testing.assert_close(AlphaCrown()(proved, box).lb, crown.lb + 100)


@pytest.mark.parametrize("bound", [AlphaCrown(steps=2), AlphaCrown("last", steps=2, budget=1)])
def test_the_network_and_the_callers_mode_are_left_alone(residual_net, bound):
    net, box = residual_net
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with torch.no_grad():
        found = bound(net, box)
        assert not torch.is_grad_enabled()
    assert not found.lb.requires_grad
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
