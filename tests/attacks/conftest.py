"""A small network trained for seconds on mnist_mini, and test images that it gets right."""

from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maar.data import load
from maar.networks.layers import Normalize


class Trained(NamedTuple):
    net: nn.Sequential
    x: Tensor
    y: Tensor


@pytest.fixture(scope="session")
def trained() -> Trained:
    data = load("mnist_mini")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            Normalize([0.1307], [0.3081]),
            nn.Conv2d(1, 8, 5, 3, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * 10 * 10, 40),
            nn.ReLU(),
            nn.Linear(40, 10),
        )
        optimiser = torch.optim.Adam(net.parameters(), 3e-3)
        x, y = data.images("train"), data.labels("train")
        for _ in range(3):
            for batch in torch.randperm(len(x)).split(100):
                # Noise makes it a little robust: a network that everything breaks compares nothing.
                noisy = (x[batch] + 0.3 * torch.randn_like(x[batch])).clamp(0, 1)
                optimiser.zero_grad()
                F.cross_entropy(net(noisy), y[batch]).backward()
                optimiser.step()
    net.eval()
    for parameter in net.parameters():
        parameter.grad = None
    x, y = data.images("test"), data.labels("test")
    with torch.no_grad():
        right = (net(x).argmax(1) == y).nonzero().squeeze(1)[::5][:150]
    return Trained(net, x[right], y[right])


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
