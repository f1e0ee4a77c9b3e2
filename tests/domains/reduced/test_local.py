"""Bounds in groups: the same as all at once, on networks of several shapes."""

import pytest
import torch
from torch import nn

from maar.domains import alpha_crown
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Corners, Problem, margins
from maar.domains.graph import compile_network
from maar.domains.reduced import local
from maar.domains.reduced.network import reduce
from maar.networks.layers import Residual

SHAPE = (2, 12, 12)


def two_convolutions():
    return [nn.Conv2d(2, 4, 4, 2, 1), nn.ReLU(), nn.Conv2d(4, 6, 4, 2, 1), nn.ReLU()]


def three_convolutions():
    return [
        nn.Conv2d(2, 4, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, 2, 1, groups=2),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, 2, 1),
        nn.ReLU(),
    ]


def residual():
    body = nn.Sequential(nn.Conv2d(3, 3, 3, 1, 1), nn.ReLU(), nn.Conv2d(3, 3, 3, 1, 1))
    return [nn.Conv2d(2, 3, 4, 4), nn.ReLU(), Residual(body), nn.ReLU()]


def network(kind, seed):
    torch.manual_seed(seed)
    layers = [*kind(), nn.Flatten()]
    size = nn.Sequential(*layers)(torch.zeros(1, *SHAPE)).shape[1]
    layers += [nn.Linear(size, 5), nn.ReLU(), nn.Linear(5, 3)]
    return nn.Sequential(*layers).double().requires_grad_(False)


def reduced_network(net, seed, parallel=False, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(1, *SHAPE, dtype=dtype, generator=generator)
    graph = compile_network(net.to(dtype), SHAPE, dtype)
    C = margins(torch.tensor([0]), 3, dtype)
    return reduce(Problem(graph, Corners(x - 0.1, x + 0.1), C), parallel=parallel)


def random_slopes(network, k, generator):
    count = len(network.layers[k].index)
    return [
        torch.rand(2, count, len(layer.index), dtype=layer.lb.dtype, generator=generator)
        for layer in network.layers[:k]
    ]


def in_groups(found, slopes):
    """The slopes of each neuron at its place in its group."""
    made = []
    for whole, seen in zip(slopes, found.seen, strict=True):
        groups, rows = found.rows.c.shape
        grouped = whole.new_full((groups, rows, seen.shape[1]), 0.5)
        for neuron, slot in enumerate(found.slot.tolist()):
            group, row = divmod(slot, rows // 2)
            grouped[group, row] = whole[0, neuron, seen[group]]
            grouped[group, rows // 2 + row] = whole[1, neuron, seen[group]]
        made.append(grouped)
    return made


def with_large_errors(net, generator):
    """The error terms are so small that no comparison would see them: others in their place."""
    for layer in net.layers:
        layer.rows.e = torch.rand(len(layer.rows), dtype=layer.lb.dtype, generator=generator)


@pytest.mark.parametrize(
    ("seed", "dtype"),
    [(0, torch.float64), (1, torch.float64), (2, torch.float64), (0, torch.float32)],
)
@pytest.mark.parametrize("kind", [two_convolutions, three_convolutions, residual])
def test_the_bounds_are_those_of_all_rows_at_once(kind, seed, dtype, monkeypatch):
    monkeypatch.setattr(local, "WORTH", 0)
    net, _ = reduced_network(network(kind, seed), seed, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    with_large_errors(net, generator)
    groups = 0
    for k, layer in enumerate(net.layers):
        found = local.grouped(net, k)
        if found is None:
            continue
        groups += 1
        slopes = random_slopes(net, k, generator)
        low, high = found.bounds(net.layers[:k], in_groups(found, slopes))
        torch.testing.assert_close(low, net.lower(layer.rows, [slope[0] for slope in slopes]))
        torch.testing.assert_close(high, net.upper(layer.rows, [slope[1] for slope in slopes]))
    assert groups == {"two_convolutions": 1, "three_convolutions": 2, "residual": 2}[kind.__name__]


@pytest.mark.parametrize("kind", [two_convolutions, three_convolutions, residual])
def test_alpha_crown_with_and_without_groups(kind, monkeypatch):
    net, rows = reduced_network(network(kind, 1), 1)
    rows.c.fill_(-100.0)  # nothing is ever proved, so all steps are taken
    start = torch.full_like(rows.c, -1e6)
    monkeypatch.setattr(local, "WORTH", 0)
    grouped, one = AlphaCrown(steps=6).improve(net, rows, start)
    monkeypatch.setattr(alpha_crown, "grouped", lambda *given: None)
    whole, other = AlphaCrown(steps=6).improve(net, rows, start)
    torch.testing.assert_close(grouped, whole)
    for left, right in zip(one.layers, other.layers, strict=True):
        torch.testing.assert_close(left.lb, right.lb)
        torch.testing.assert_close(left.ub, right.ub)


def test_no_groups_where_there_is_nothing_to_gain(monkeypatch):
    net, _ = reduced_network(network(two_convolutions, 0), 0)
    assert local.grouped(net, 0) is None  # its bounds are exact
    assert local.grouped(net, 2) is None  # a linear layer sees everything
    monkeypatch.setattr(local, "WORTH", 1e9)
    assert local.grouped(net, 1) is None
    monkeypatch.setattr(local, "WORTH", 0)
    assert local.grouped(net, 1) is not None
    assert local.grouped(net, 1, budget=1000) is None
    # the lines of a zonotope are others
    assert (
        local.grouped(reduced_network(network(two_convolutions, 0), 0, parallel=True)[0], 1) is None
    )


def test_rows_that_see_no_unstable_relu(monkeypatch):
    """The second convolution sees the first channel only, which is always active."""
    monkeypatch.setattr(local, "WORTH", 0)
    model = network(two_convolutions, 0)
    model[0].bias[0] = 10
    model[2].weight[:, 1:] = 0
    model[2].bias.copy_(-10 * model[2].weight.sum((1, 2, 3)))
    net, rows = reduced_network(model, 0)
    found = local.grouped(net, 1)
    assert found is not None
    assert found.seen[0].shape[1] == 0 < len(net.layers[0].index)
    low, high = found.bounds(net.layers[:1], found.slopes(net.layers[:1], alpha_crown.lower_slope))
    torch.testing.assert_close(low, net.lower(net.layers[1].rows))
    torch.testing.assert_close(high, net.upper(net.layers[1].rows))
    better, _ = AlphaCrown(steps=2).improve(net, rows, net.bounds(rows)[0][0] - 10)
    assert bool(better.isfinite().all())
