"""The auditor's own attack."""

import torch
from torch import nn

from maar.certification.audit.attack import attack, inside
from maar.certification.audit.points import Limits


def test_the_worst_point_of_an_affine_network_is_found_for_every_class():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 5)).requires_grad_(False)
    x, y = torch.rand(6, 1, 4, 4), torch.tensor([0, 1, 2, 3, 4, 0])
    found = attack(net, x, y, Limits.of(0.2), restarts=2, seeds=range(6))
    low, high = inside(x, Limits.of(0.2))
    weight, bias = net[1].weight, net[1].bias
    for n in range(6):
        rows, constant = weight[y[n]] - weight, bias[y[n]] - bias
        ends = torch.where(rows > 0, low[n].flatten(), high[n].flatten())
        least = (rows * ends).sum(1) + constant
        least[y[n]] = torch.inf
        torch.testing.assert_close(found.margin[n], least.min(), rtol=1e-4, atol=1e-4)


def test_no_point_leaves_the_ball():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 20), nn.ReLU(), nn.Linear(20, 3))
    x = torch.rand(50, 1, 4, 4)
    x[:5], x[5:10] = 0, 1
    for eps in (0.1, 1 / 3, 2 / 255, 1e-9):
        y, near = torch.zeros(50, dtype=torch.long), Limits.of(eps)
        found = attack(net.requires_grad_(False), x, y, near, restarts=2, seeds=range(50))
        assert ((found.point.double() - x.double()).abs() <= eps).all()
        assert (found.point >= 0).all()
        assert (found.point <= 1).all()


def test_an_image_does_not_depend_on_its_neighbours():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 20), nn.ReLU(), nn.Linear(20, 3))
    net.requires_grad_(False)
    x, y = torch.rand(4, 1, 4, 4), torch.tensor([0, 1, 2, 0])
    together = attack(net, x, y, Limits.of(0.1), restarts=3, seeds=[5, 6, 7, 8])
    alone = attack(net, x[2:3], y[2:3], Limits.of(0.1), restarts=3, seeds=[7])
    torch.testing.assert_close(together.margin[2:3], alone.margin)
