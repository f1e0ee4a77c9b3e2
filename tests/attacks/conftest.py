"""A small network trained for seconds on mnist_mini, and test images that it gets right."""

import copy
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn


class Trained(NamedTuple):
    net: nn.Sequential
    x: Tensor
    y: Tensor


@pytest.fixture(scope="session")
def trained(mnist_mini, noisily_trained) -> Trained:
    net = copy.deepcopy(noisily_trained)
    x, y = mnist_mini.images("test"), mnist_mini.labels("test")
    with torch.no_grad():
        right = (net(x).argmax(1) == y).nonzero().squeeze(1)[::5][:150]
    return Trained(net, x[right], y[right])


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
