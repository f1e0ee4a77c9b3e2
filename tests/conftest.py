"""One thread for torch, and the real data sets for tests that are marked `data`."""

import signal

import pytest
import torch

from maar import data
from maar.errors import MaarError

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
