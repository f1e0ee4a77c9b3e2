"""Zonotopes: a worked example, free slopes, gradients."""

import pytest
import torch
from torch import nn

from maar.domains import zonotope
from maar.domains.bound import Corners, margins
from maar.domains.graph import compile_network
from maar.domains.reduced.network import TooLarge
from maar.domains.zonotope import Zonotope

either_form = pytest.mark.parametrize("compiled", [False, True], ids=["live", "compiled"])


def given(net, compiled, shape=(2,)):
    return compile_network(net, shape) if compiled else net


@either_form
@pytest.mark.parametrize("rounding", [False, True])
def test_the_worked_example(worked, compiled, rounding):
    """s = 3/4 and mu = t/2 = 3/8 for both ReLUs. With v1 = 1 + e1 + e2 and v2 = 1 + e1 - e2,

    h1 = 3/4 (1 + e1 + e2) + 3/8 (1 + e3),   h2 = 3/4 (1 + e1 - e2) + 3/8 (1 + e4)
    h1 + h2 = 9/4 + 3/2 e1 + 3/8 e3 + 3/8 e4   in [0, 9/2]
    h1 - h2 =       3/2 e2 + 3/8 e3 - 3/8 e4   in [-9/4, 9/4]
    """
    net, box = worked
    found = Zonotope(rounding=rounding)(given(net, compiled), box)
    expected = torch.tensor([[0, -9 / 4]]).double(), torch.tensor([[9 / 2, 9 / 4]]).double()
    torch.testing.assert_close((found.lb, found.ub), expected, rtol=0, atol=1e-12)


@either_form
def test_the_worked_example_with_another_slope(worked, compiled):
    """s = 1/2 gives t = max(s * 1, (1-s) * 3) = 3/2 and mu = 3/4:

    h1 + h2 = 5/2 + e1 + 3/4 e3 + 3/4 e4 in [0, 5],   h1 - h2 = e2 + 3/4 e3 - 3/4 e4
    """
    net, box = worked
    half = torch.full((2,), 0.5, dtype=torch.float64)
    found = Zonotope((half,))(given(net, compiled), box)
    expected = torch.tensor([[0, -5 / 2]]).double(), torch.tensor([[5, 5 / 2]]).double()
    torch.testing.assert_close((found.lb, found.ub), expected, rtol=0, atol=1e-12)


@either_form
def test_each_image_may_have_its_own_slopes(worked, compiled):
    net, box = worked
    two = Corners(box.lb.expand(2, -1), box.ub.expand(2, -1))
    slopes = torch.tensor([[0.5, 0.5], [0.75, 0.75]], dtype=torch.float64)
    found = Zonotope((slopes,))(given(net, compiled), two)
    torch.testing.assert_close(found.ub[:, 0], torch.tensor([5.0, 4.5]).double())


def test_stable_relus_add_no_terms():
    net = nn.Sequential(nn.Linear(3, 50), nn.ReLU(), nn.Linear(50, 2)).double()
    with torch.no_grad():
        net[0].bias.fill_(-100)
        net[0].bias[7] = 0
        net[0].weight[7] = 1
    box = Corners(-torch.ones(1, 3).double(), torch.ones(1, 3).double())
    sizes = []
    relu = zonotope._relu

    def noted(*args):
        out = relu(*args)
        sizes.append({k: e.shape[1] for k, e in out.groups.items()})
        return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zonotope, "_relu", noted)
        Zonotope()(net, box)
    assert sizes == [{-1: 3, 0: 1}]


def test_gradients(residual_net, close_to_differences):
    net, box = residual_net
    C = margins(torch.tensor([0, 2]), 3, torch.float64)
    close_to_differences(lambda: Zonotope()(net, box, C).lb.sum(), list(net.parameters()))


@either_form
def test_slopes_can_be_trained(residual_net, close_to_differences, compiled):
    net, box = residual_net
    graph = given(net, compiled, (1, 6, 6))
    shapes = [lb.shape[1:] for lb, _ in Zonotope()(net, box).pre]
    torch.manual_seed(1)
    slopes = tuple((0.2 + 0.6 * torch.rand(s)).double().requires_grad_() for s in shapes)
    C = margins(torch.tensor([0, 2]), 3, torch.float64)

    def loss():
        return Zonotope(slopes)(graph, box, C).lb.sum()

    close_to_differences(loss, list(slopes))


def test_too_many_unstable_relus_are_refused(residual_net):
    net, box = residual_net
    with pytest.raises(TooLarge, match=r"unstable ReLUs .* budget .* crown"):
        Zonotope(budget=1000)(compile_network(net, (1, 6, 6)), box)
