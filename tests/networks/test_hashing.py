"""`weights_hash`: the same for the same network, another for any other."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn

from maar.core.errors import UsageError
from maar.networks import Normalize, Residual, make, weights_hash


def network():
    torch.manual_seed(0)
    block = Residual(nn.Sequential(nn.Conv2d(4, 4, 3, 1, 1)))
    return nn.Sequential(
        Normalize([0.5], [0.2]),
        nn.Conv2d(1, 4, 3, 1, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        block,
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


def test_it_is_a_fixed_number():
    # Of hand-set weights, so that neither torch's random numbers nor its version enter.
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 2), nn.ReLU())
    net[1].weight.data = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    net[1].bias.data = torch.tensor([0.5, -0.5])
    assert weights_hash(net) == "c8579195a2577176a4d1aa368517e312f2ae3212e9c527d8935f8a7c33a413e9"


def test_equal_for_what_computes_the_same():
    net = network()
    expected = weights_hash(net)
    assert weights_hash(copy.deepcopy(net)) == expected
    assert weights_hash(copy.deepcopy(net).eval().requires_grad_(False)) == expected
    named = nn.Sequential(OrderedDict((f"layer{k}", layer) for k, layer in enumerate(net)))
    assert weights_hash(named) == expected
    strided = copy.deepcopy(net)
    strided[7].weight.data = strided[7].weight.data.t().contiguous().t()
    assert weights_hash(strided) == expected


def nudge(tensor):
    flat = tensor.data.view(-1)
    flat[-1] = torch.nextafter(flat[-1], torch.tensor(9.0))


CHANGES = {
    "a weight by one ulp": lambda net: nudge(net[1].weight),
    "a bias by one ulp": lambda net: nudge(net[7].bias),
    "a weight in a residual": lambda net: nudge(net[4].body[0].weight),
    "the mean": lambda net: nudge(net[0].mean),
    "the running variance": lambda net: nudge(net[2].running_var),
    "BatchNorm's eps": lambda net: setattr(net[2], "eps", 1e-4),
    "a stride": lambda net: setattr(net[4].body[0], "stride", (2, 2)),
    "a padding": lambda net: setattr(net[1], "padding", (0, 0)),
    "the pool's stride": lambda net: setattr(net[5], "stride", 1),
    "the dtype": lambda net: net.double(),
    "one layer more": lambda net: net.append(nn.ReLU()),
    "a shortcut": lambda net: net[4].shortcut.append(nn.ReLU()),
    "the order": lambda net: net.insert(2, net.pop(3)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_different_after(change):
    net = network()
    before = weights_hash(net)
    CHANGES[change](net)
    assert weights_hash(net) != before


def test_a_layer_inside_and_after_a_residual_differ():
    inside = nn.Sequential(Residual(nn.Sequential(nn.ReLU(), nn.ReLU())))
    after = nn.Sequential(Residual(nn.Sequential(nn.ReLU())), nn.ReLU())
    assert weights_hash(inside) != weights_hash(after)


def test_an_unsupported_layer_has_no_hash():
    with pytest.raises(UsageError, match="layer 0 is a GELU"):
        weights_hash(nn.Sequential(nn.GELU()))


def test_every_registered_network_differs():
    nets = [make(name, (1, 12, 12), 3, seed=0) for name in ("mlp", "cnn5", "resnet_small")]
    assert len({weights_hash(net) for net in nets}) == len(nets)
