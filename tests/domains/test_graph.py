"""Networks opened into graphs, live and compiled."""

import pytest
import torch
from torch import nn

from maar.domains.bound import Corners
from maar.domains.crown import Crown
from maar.domains.graph import compile_network, one_affine, trace
from maar.domains.interval import Interval
from maar.networks.layers import Normalize, Residual
from maar.networks.maps import Add


def test_nested_containers_and_residual_blocks_are_opened():
    body = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    net = nn.Sequential(nn.Sequential(nn.Identity(), nn.Linear(3, 2)), Residual(body), nn.Dropout())
    graph = trace(net, (3,))
    kinds = [(type(node.op), node.inputs, node.path) for node in graph.nodes]
    assert kinds == [
        (nn.Linear, (0,), "0.1"),
        (nn.Linear, (1,), "1.body.0"),
        (nn.ReLU, (2,), "1.body.1"),
        (Add, (3, 1), "1"),
    ]
    assert [tuple(shape) for shape in graph.shapes] == [(3,), (2,), (2,), (2,), (2,)]
    assert graph.relus == [2]


def test_one_affine():
    """One matrix behind the input keeps each neuron's range exact; two do not, nor does a sum."""
    net = nn.Sequential(
        Normalize([0.0], [1.0]),
        nn.Conv2d(1, 2, 1),
        nn.BatchNorm2d(2),
        nn.Flatten(),
        nn.Linear(2, 2),
    )
    graph = trace(net, (1, 1, 1))
    assert [one_affine(graph, value) for value in range(6)] == [True] * 5 + [False]
    both = trace(nn.Sequential(Residual(nn.Sequential(nn.Linear(1, 1)))), (1,))
    assert not one_affine(both, 2)


def test_a_traced_network_is_alive_and_a_compiled_one_is_frozen():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    box = Corners(torch.zeros(1, 2), torch.ones(1, 2))
    live, frozen = trace(net, (2,)), compile_network(net, (2,))
    before = [Crown()(graph, box).lb.clone() for graph in (live, frozen)]
    with torch.no_grad():
        net[2].bias += 1
    torch.testing.assert_close(Crown()(live, box).lb, before[0] + 1)
    torch.testing.assert_close(Crown()(frozen, box).lb, before[1])
    assert not Crown()(frozen, box).lb.requires_grad
    assert net[0].weight.requires_grad


def test_compiling_in_another_precision():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    graph = compile_network(net, (2,), torch.float64)
    assert graph.dtype == torch.float64
    assert net[0].weight.dtype == torch.float32
    found = Interval()(graph, Corners(torch.zeros(1, 2), torch.ones(1, 2)))
    assert found.lb.dtype == found.pre[0][0].dtype == torch.float64


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_means_its_running_statistics(training):
    """Whatever the mode; and tracing moves them not."""
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten())
    net[1].running_mean.fill_(0.5)
    net.train(training)
    box = Corners(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2))
    found = Interval()(net, box)
    assert net[1].running_mean.tolist() == [0.5, 0.5]
    assert net[1].num_batches_tracked == 0
    assert net.training is training
    net.eval()
    with torch.no_grad():
        torch.testing.assert_close(Interval()(net, box).lb, found.lb)
