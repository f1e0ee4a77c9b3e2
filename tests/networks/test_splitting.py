"""`split` and `relu_indices`."""

import pytest
import torch

from maar.core.errors import UsageError
from maar.networks import make, relu_indices, split


@pytest.fixture
def net():
    return make("convmed_2_2_100", (1, 12, 12), 3, seed=0)


def test_relu_indices(net):
    assert relu_indices(net) == [2, 4, 7]
    # The ReLUs inside the residual blocks are no places to cut at.
    assert relu_indices(make("resnet_small", (1, 12, 12), 3)) == [2, 4, 6, 9]


def test_the_parts_are_the_whole_at_every_index(net):
    x = torch.rand(4, 1, 12, 12)
    for index in range(len(net) + 1):
        prefix, suffix = split(net, index)
        assert (len(prefix), len(suffix)) == (index, len(net) - index)
        assert torch.equal(suffix(prefix(x)), net(x))


def test_the_parts_share_their_layers_and_names(net):
    prefix, suffix = split(net, 3)
    assert prefix[1] is net[1]
    assert suffix[0] is net[3]
    assert {*prefix.state_dict(), *suffix.state_dict()} == set(net.state_dict())


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_kept(net, training):
    net.train(training)
    parts = split(net, 3)
    assert [part.training for part in parts] == [training, training]
    assert all(layer.training == training for layer in net)


@pytest.mark.parametrize("index", [-1, 10])
def test_an_index_outside(net, index):
    with pytest.raises(UsageError, match=f"{index} is outside 0..9"):
        split(net, index)
