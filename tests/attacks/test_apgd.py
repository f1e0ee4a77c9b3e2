"""Auto-PGD: the paper's checkpoints, and a step that shrinks where a fixed one would swing."""

import pytest
import torch
from torch import nn

from maar.attacks import APGD, PGD
from maar.attacks.apgd import _checkpoints
from maar.regions import Ball


def test_checkpoints_of_the_paper():
    assert sorted(_checkpoints(100)) == [22, 41, 57, 70, 80, 87, 93, 99]


def distance_net(centre):
    """z_0 = -|x - centre|_1, z_1 = 0: the worst point for class 1 is the centre itself."""
    size = len(centre)
    net = nn.Sequential(nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.cat([torch.eye(size), -torch.eye(size)]))
        net[0].bias.copy_(torch.cat([-centre, centre]))
        net[2].weight.copy_(torch.stack([-torch.ones(2 * size), torch.zeros(2 * size)]))
        net[2].bias.zero_()
    return net


@pytest.mark.parametrize("loss", ["cross_entropy", "margin"])
def test_step_adapts_to_a_peak_inside_the_region(loss, generator):
    centre = torch.tensor([0.47, 0.52, 0.5, 0.55])
    net = distance_net(centre)
    ball = Ball(torch.full((6, 4), 0.5), 0.1)
    y = torch.ones(6, dtype=torch.long)

    def miss(attack):
        return (ball.point(attack(net, ball, y, generator=generator)) - centre).abs().max()

    assert miss(PGD(steps=100, step_size=2.0, loss=loss, keep="best")) > 0.02
    assert miss(APGD(steps=100, loss=loss)) < 0.005
