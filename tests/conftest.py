"""One thread for torch, and the real data sets for tests that are marked `data`."""

import signal

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from maar import data
from maar.core.errors import MaarError
from maar.networks.layers import Normalize

# Several workers share the machine, and sums come out the same on every machine.
torch.set_num_threads(1)
# A shell that starts the tests in the background has Ctrl-C ignored, in all their children too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def mnist() -> data.DataSet:
    """The whole of MNIST, fetched if need be; skips where it cannot be had."""
    try:
        data.fetch("mnist")
        return data.load("mnist")
    except MaarError as error:
        pytest.skip(f"no MNIST here: {error}")


@pytest.fixture(scope="session")
def cifar10() -> data.DataSet:
    """The whole of CIFAR-10 where it is already in the cache: too large to fetch for a test."""
    try:
        return data.load("cifar10")
    except MaarError as error:
        pytest.skip(f"no CIFAR-10 here: {error}")


@pytest.fixture(scope="session")
def mnist_mini() -> data.DataSet:
    """The embedded subset of MNIST: always there."""
    return data.load("mnist_mini")


@pytest.fixture(scope="session")
def noisily_trained(mnist_mini) -> nn.Sequential:
    """A small network trained for seconds. Noise makes it a little robust: one that everything
    breaks compares nothing. Take a copy of it."""
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
    net.zero_grad(set_to_none=True)
    return net.eval()
