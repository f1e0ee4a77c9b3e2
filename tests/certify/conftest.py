"""Networks to certify: one trained for seconds, one of which every margin is known by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from maar.certify.network import Network
from maar.certify.query import Query
from maar.data import DataSet, Info
from maar.data.dataset import Arrays, make
from maar.networks.layers import Normalize


@pytest.fixture(scope="session")
def trained(mnist_mini) -> nn.Sequential:
    """A small convolutional network that is a little robust at eps = 0.04."""
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
        x, y = mnist_mini.images("train"), mnist_mini.labels("train")
        for _ in range(3):
            for batch in torch.randperm(len(x)).split(100):
                noisy = (x[batch] + 0.3 * torch.randn_like(x[batch])).clamp(0, 1)
                optimiser.zero_grad()
                F.cross_entropy(net(noisy), y[batch]).backward()
                optimiser.step()
    return net.eval()


@pytest.fixture
def two_pixels() -> nn.Sequential:
    """z = x for images of two pixels: the least margin is x_0 - x_1 - 2 eps, exactly."""
    linear = nn.Linear(2, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(2))
        linear.bias.zero_()
    return nn.Sequential(nn.Flatten(), linear)


@pytest.fixture
def ask(two_pixels):
    """A question about the image (0.75, 0.25) with label 0: robust for eps < 0.25."""

    def question(eps, net=two_pixels, y=0):
        network = Network(net, (1, 1, 2))
        return Query.of(network, torch.tensor([[[[0.75, 0.25]]]]), y, eps)

    return question


@pytest.fixture
def tiny_data():
    """A data set of tiny images, such as `tiny_data(x, y)`; floats in [0, 1]."""

    def data(x, y, classes=2) -> DataSet:
        x = np.asarray(x, np.float32)
        shape = x.shape[1:]
        names = tuple(map(str, range(classes)))
        info = Info("tiny", shape, names, 0, len(x), (0.0,) * shape[0], (1.0,) * shape[0])
        empty = np.empty((0, *shape), np.float32), np.empty(0, np.int64)
        return make(info, Arrays(*empty, x, np.asarray(y, np.int64)))

    return data
