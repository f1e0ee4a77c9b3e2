"""Networks to certify: one trained for seconds, one of which every margin is known by hand."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from maar.certification.network import Network
from maar.certification.query import Query
from maar.data import DataSet, Info
from maar.data.dataset import Arrays, make


@pytest.fixture(scope="session")
def trained(noisily_trained) -> nn.Sequential:
    """A small convolutional network that is a little robust at eps = 0.04."""
    return copy.deepcopy(noisily_trained)


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
