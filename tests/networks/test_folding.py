"""`fold`: the same function with fewer layers, and the places where folding would not be exact."""

import copy
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from maar.networks import NETWORKS, Normalize, Residual, fold, make

AFFINE = (nn.Conv2d, nn.Linear)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def distance(net, folded, shape, dtype=torch.float32):
    """Largest difference of the outputs, relative to the largest output."""
    x = torch.rand(8, *shape, dtype=dtype)
    with torch.no_grad():
        y = copy.deepcopy(net).eval()(x)
        return float((folded(x) - y).abs().max() / (y.abs().max() + 1e-3))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_folded_network_is_the_same_function(random_net, data):
    net = random_net(data).double()
    folded = fold(net)
    assert distance(net, folded, (2, 6, 5), torch.float64) < 1e-9
    for before, after in itertools.pairwise(folded):
        assert not (isinstance(before, AFFINE) and isinstance(after, NORMS))


@pytest.mark.parametrize("name", NETWORKS)
def test_registered_networks_in_float32(name):
    net = make(name, (3, 16, 16), 10, mean=[0.49, 0.48, 0.45], std=[0.2, 0.2, 0.2], seed=0)
    net.train()
    with torch.no_grad():
        net(torch.rand(16, 3, 16, 16))  # gives BatchNorm statistics to fold
    folded = fold(net)
    assert distance(net, folded, (3, 16, 16)) < 1e-5
    assert not any(isinstance(layer, NORMS) for layer in folded)
    assert all(p.dtype == torch.float32 and not p.requires_grad for p in folded.parameters())
    assert not folded.training


def test_the_original_is_untouched():
    net = make("cnn7", (1, 8, 8), 3, seed=0)
    before = copy.deepcopy(net.state_dict())
    fold(net)
    assert net.training
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert all(p.requires_grad for p in net.parameters())


def kinds(net):
    return [type(layer).__name__ for layer in net]


NORMALIZE = Normalize([0.3, 0.6], [0.2, 0.5])


@pytest.mark.parametrize(
    ("layers", "left"),
    [
        ([NORMALIZE, nn.Flatten(), nn.Linear(32, 3)], ["Flatten", "Linear"]),
        ([NORMALIZE, nn.Conv2d(2, 3, 3)], ["Conv2d"]),
        # A padded zero is the pixel `mean`: no bias can imitate that at the border.
        ([NORMALIZE, nn.Conv2d(2, 3, 3, padding=1)], ["Normalize", "Conv2d"]),
        ([NORMALIZE, nn.Conv2d(2, 3, 3, padding=(0, 1))], ["Normalize", "Conv2d"]),
        ([Normalize([0, 0], [2, 3]), nn.Conv2d(2, 3, 3, padding=1)], ["Conv2d"]),
        ([nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()], ["Conv2d", "ReLU"]),
        ([nn.ReLU(), nn.BatchNorm2d(2), nn.ReLU()], ["ReLU", "BatchNorm2d", "ReLU"]),
        ([nn.ReLU(), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3)], ["ReLU", "Conv2d"]),
        (
            [nn.ReLU(), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3, padding=1)],
            ["ReLU", "BatchNorm2d", "Conv2d"],
        ),
        ([NORMALIZE, nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3)], ["Normalize", "Conv2d"]),
    ],
)
def test_what_is_folded_and_what_stays(layers, left):
    net = nn.Sequential(*copy.deepcopy(layers)).double()
    for layer in net:
        if isinstance(layer, NORMS) and layer.running_mean is not None:
            layer.running_mean.fill_(0.7)
            nn.init.constant_(layer.bias, 0.4)
    assert kinds(fold(net)) == left
    assert distance(net, fold(net), (2, 4, 4), torch.float64) < 1e-12


def test_inside_a_residual():
    body = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2))
    shortcut = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))
    net = nn.Sequential(Residual(body, shortcut), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 3))
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d) and layer.running_mean is not None:
            layer.running_mean.fill_(0.7)
    folded = fold(net.double())
    assert kinds(folded) == ["Residual", "Flatten", "Linear"]
    block = folded[0]
    assert isinstance(block, Residual)
    assert kinds(block.body) == kinds(block.shortcut) == ["Conv2d"]
    assert distance(net, folded, (2, 4, 4), torch.float64) < 1e-12


def test_a_module_in_two_places_is_folded_for_each():
    shared = nn.Conv2d(2, 2, 1)
    norms = nn.BatchNorm2d(2), nn.BatchNorm2d(2)
    nn.init.constant_(norms[1].weight, 3.0)
    net = nn.Sequential(shared, norms[0], nn.ReLU(), shared, norms[1]).double()
    assert distance(net, fold(net), (2, 4, 4), torch.float64) < 1e-12
