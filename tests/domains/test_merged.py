"""BatchNorm multiplied into the layer before it changes no bound and no gradient."""

import pytest
import torch
from torch import nn

from maar.domains.bound import margins
from maar.domains.crown import Crown
from maar.domains.graph import trace
from maar.domains.interval import Interval
from maar.domains.merged import merged
from maar.networks.layers import Normalize, Residual
from maar.regions import Ball


def _plain():
    return nn.Sequential(
        Normalize([0.4], [0.3]),
        nn.Conv2d(1, 3, 3, 2, 1, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(27, 5),
        nn.BatchNorm1d(5),
        nn.ReLU(),
        nn.Linear(5, 4),
    )


def _residual():
    body = nn.Sequential(nn.Conv2d(3, 3, 3, 1, 1), nn.BatchNorm2d(3), nn.ReLU())
    body.append(nn.Conv2d(3, 3, 3, 1, 1)).append(nn.BatchNorm2d(3))
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, 2, 1),
        nn.ReLU(),
        nn.BatchNorm2d(3),  # after a ReLU: stays
        Residual(body, nn.Identity()),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(27, 4),
    )


@pytest.mark.parametrize(("make", "fewer"), [(_plain, 2), (_residual, 2)])
@pytest.mark.parametrize("bound", [Interval(), Crown("interval", upper=False)])
def test_bounds_and_gradients(make, fewer, bound):
    torch.manual_seed(0)
    net = make().double()
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            for values in (layer.weight, layer.bias, layer.running_mean):
                nn.init.normal_(values)  # (scales of both signs)
            nn.init.uniform_(layer.running_var, 0.5, 2)
    net.eval()
    x, y = torch.rand(6, 1, 6, 6, dtype=torch.float64), torch.arange(6) % 4
    graph = trace(net, x.shape[1:])
    assert len(graph.nodes) - len(merged(graph).nodes) == fewer
    found = []
    for each in (graph, merged(graph)):
        net.zero_grad()
        given = bound(each, Ball(x, 0.05), margins(y, 4, x.dtype))
        (given.lb.sum() + sum(lb.square().sum() for lb, _ in given.pre)).backward()
        found.append((given.lb.detach(), [p.grad.clone() for p in net.parameters()]))
    (lb, gradients), (other_lb, other_gradients) = found
    torch.testing.assert_close(lb, other_lb)
    torch.testing.assert_close(gradients, other_gradients)


def test_a_value_that_is_used_twice_keeps_its_own_layer():
    net = nn.Sequential(
        nn.Conv2d(1, 1, 3, 1, 1), Residual(nn.BatchNorm2d(1), nn.Identity()), nn.Flatten()
    ).eval()
    graph = trace(net, (1, 4, 4))
    assert len(merged(graph).nodes) == len(graph.nodes)


def test_the_statistics_of_the_moment_and_the_network_untouched():
    net = _plain().eval()
    graph = trace(net, (1, 6, 6))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    ball = Ball(torch.rand(2, 1, 6, 6), 0.1)
    first = Interval()(merged(graph), ball).lb
    net[2].running_mean = net[2].running_mean + 1
    assert not torch.equal(Interval()(merged(graph), ball).lb, first)
    net[2].running_mean = net[2].running_mean - 1
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
