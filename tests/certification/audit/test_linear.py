"""The auditor's own CROWN: sound, and as tight as the certifier's, which shares no code with it."""

import pytest
import torch
from torch import nn

from maar.certification.audit.linear import alpha_crown, crown, margins_of
from maar.certification.audit.points import Limits
from maar.domains.bound import margins
from maar.domains.crown import Crown
from maar.networks.layers import Normalize, Residual
from maar.regions import Ball


def plain(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        Normalize([0.4], [0.3]),
        nn.Conv2d(1, 4, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, padding=1, groups=2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 8),
        nn.ReLU(),
        nn.Linear(8, 4),
    )


def residual(seed):
    torch.manual_seed(seed)
    norm = nn.BatchNorm2d(4)
    nn.init.uniform_(norm.weight, -1, 1)
    nn.init.uniform_(norm.running_mean)
    body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), norm, nn.ReLU(), nn.Conv2d(4, 4, 1))
    inner = Residual(nn.Sequential(nn.ReLU(), nn.Conv2d(4, 4, 1)))
    shortcut = nn.Sequential(nn.Conv2d(4, 4, 1), inner)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1),
        nn.ReLU(),
        Residual(body, shortcut),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 4),
    )


def case(build, seed, eps):
    net = build(seed).eval().double().requires_grad_(False)
    x = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(seed)).float()
    enclosed, rows = margins_of(net, x, 1, Limits.of(eps))
    return net, x, enclosed, rows


@pytest.mark.parametrize("build", [plain, residual])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("eps", [0.01, 0.1])
def test_it_is_a_bound(build, seed, eps):
    net, x, enclosed, rows = case(build, seed, eps)
    lb = crown(enclosed, rows)
    better = alpha_crown(enclosed, rows, lb)
    assert (better >= lb).all()
    ball = Ball(x.double(), eps)
    generator = torch.Generator().manual_seed(1)
    many = Ball(x.double().expand(500, -1, -1, -1), eps)
    points = many.point(many.random_start(generator))
    corners = many.point(tuple(e.sign() for e in many.random_start(generator)))
    for inside in (points, corners):
        least = (net(inside) @ rows.T).min(0).values
        assert (better <= least + 1e-12).all()
    # inner bounds too
    value, seen = ball, 0
    value = torch.cat([points, corners])
    for i, layer in enumerate(net):
        if (i,) in enclosed.pre:
            low, high = enclosed.pre[(i,)]
            assert (low - 1e-12 <= value).all()
            assert (value <= high + 1e-12).all()
            seen += 1
        value = layer(value)
    assert seen >= 2


@pytest.mark.parametrize("seed", range(3))
def test_as_tight_as_the_certifiers(seed):
    net, x, enclosed, rows = case(plain, seed, 0.03)
    theirs = Crown(upper=False)(net, Ball(x.double(), 0.03), margins(torch.tensor([1]), 4).double())
    torch.testing.assert_close(crown(enclosed, rows), theirs.lb[0], rtol=0, atol=1e-9)


def test_exact_on_an_affine_network(two_pixels):
    net = two_pixels.double().requires_grad_(False)
    enclosed, rows = margins_of(net, torch.tensor([[[[0.75, 0.25]]]]), 0, Limits.of(0.125))
    torch.testing.assert_close(crown(enclosed, rows), torch.tensor([0.25]).double())


def test_alpha_crown_proves_more():
    _, _, enclosed, rows = case(plain, 0, 0.1)
    lb = crown(enclosed, rows)
    low = lb - lb.max() - 1  # nothing is proved: every row is worked on
    better = alpha_crown(enclosed, rows, low)
    assert (better >= lb - 1e-12).all()
