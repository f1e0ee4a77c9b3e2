"""Bands against rational numbers: no value of the network lies outside."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from maar.certification.properties.exact import exactly
from maar.domains.forward import Forward, free_inputs, lowest
from maar.domains.graph import trace
from maar.networks.layers import Residual


def network(seed, scale=1.0):
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    net = nn.Sequential(
        nn.Linear(3, 6), nn.ReLU(), Residual(body), nn.ReLU(), nn.Linear(6, 40), nn.ReLU()
    )
    last = nn.Linear(40, 2)
    with torch.no_grad():
        last.weight.mul_(torch.rand(2, 40) < 0.05)  # multiplied as a sparse matrix
        net[0].weight.mul_(scale)
    return nn.Sequential(*net, last).eval().requires_grad_(False)


def boxes(seed, count=6):
    rng = np.random.default_rng(seed)
    centre = rng.uniform(-1, 1, (count, 3))
    radius = 10 ** rng.uniform(-6, 0, (count, 1)) * rng.uniform(0, 1, (count, 3))
    radius[:, 2] = 0.0 if seed % 2 else radius[:, 2]
    return torch.from_numpy(centre - radius), torch.from_numpy(centre + radius)


@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("seed", range(4))
def test_every_point_is_inside(seed, scale):
    graph = trace(network(seed, scale).double(), (3,))
    lb, ub = boxes(seed)
    band, pre = Forward(graph)(lb, ub)
    C = torch.tensor([[1.0, -1.0], [0.5, 0.25], [-1.0, 0.0]], dtype=torch.float64)
    low = lowest(band, C.expand(len(lb), -1, -1))
    outer = band.bounds()
    places = [graph.nodes[i].inputs[0] for i in graph.relus]
    for n in range(len(lb)):
        corners = itertools.product(*zip(lb[n].tolist(), ub[n].tolist(), strict=True))
        for point in [*corners, ((lb[n] + ub[n]) / 2).tolist()]:
            x = [Fraction(v) for v in point]
            y = exactly(graph, x)
            for k, row in enumerate(C.tolist()):
                value = sum(Fraction(a) * v for a, v in zip(row, y, strict=True))
                assert Fraction(float(low[n, k])) <= value
            for k, value in enumerate(y):
                assert Fraction(float(outer[0][n, k])) <= value <= Fraction(float(outer[1][n, k]))
            for (a, b), place in zip(pre, places, strict=True):
                part = trace(nn.Sequential(), (3,))
                part.nodes, part.shapes = graph.nodes[:place], graph.shapes[: place + 1]
                for k, value in enumerate(exactly(part, x)):
                    assert Fraction(float(a[n, k])) <= value <= Fraction(float(b[n, k]))


def is_caught(seed, scale):
    try:
        test_every_point_is_inside(seed, scale)
    except AssertionError:
        return True
    return False


def test_a_planted_bug_is_caught(monkeypatch):
    """Without what rounding does, or with half of the band above a ReLU, points lie outside."""
    from maar.domains import forward

    def half(lb, ub):
        slope, intercept = upper(lb, ub)
        return slope, intercept / 2

    upper = forward.upper_line
    monkeypatch.setattr(forward, "upper_line", half)
    assert sum(is_caught(seed, 1.0) for seed in range(4))


def test_without_rounding_points_lie_outside(monkeypatch):
    from maar.domains import forward

    monkeypatch.setattr(forward, "gamma", lambda n, dtype: 0.0)
    monkeypatch.setattr(forward, "unit", lambda dtype: 0.0)
    assert sum(is_caught(seed, 1e6) for seed in range(4))


def test_a_narrow_box_has_narrow_bounds():
    graph = trace(network(0).double(), (3,))
    x = torch.tensor([[0.3, -0.2, 0.1]], dtype=torch.float64)
    band, _ = Forward(graph)(x - 1e-9, x + 1e-9)
    lb, ub = band.bounds()
    assert float((ub - lb).max()) < 1e-7
    assert free_inputs(x, x).tolist() == []
