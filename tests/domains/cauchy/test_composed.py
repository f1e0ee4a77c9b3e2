"""Norms after two matrices: those of the zonotope, for any geometry, with their gradients."""

import pytest
import torch
from torch import nn

from maar.domains.bound import Corners, intersect
from maar.domains.cauchy import two_convolutions
from maar.domains.cauchy.estimate import Cauchy
from maar.domains.interval import Interval
from maar.domains.zonotope import Zonotope
from maar.networks.layers import Normalize

# So many projections would cost more than any exact norm: nothing is left to chance.
EXACT = Cauchy(projections=10**9)

NETS = {
    "mnist's kernels": (
        (1, 12, 12),
        [nn.Conv2d(1, 3, 5, 2, 2), nn.ReLU(), nn.Conv2d(3, 4, 4, 2, 1)],
    ),
    "odd": (
        (2, 13, 14),
        [
            nn.Conv2d(2, 3, (3, 2), (2, 3), (1, 0)),
            nn.ReLU(),
            nn.Conv2d(3, 4, (2, 3), (1, 2), (2, 1)),
        ],
    ),
    "much padding": ((1, 5, 4), [nn.Conv2d(1, 3, 3, 1, 2), nn.ReLU(), nn.Conv2d(3, 2, 2, 3, 1)]),
    "first dilated": (
        (2, 10, 9),
        [nn.Conv2d(2, 3, 3, 1, 1, dilation=2), nn.ReLU(), nn.Conv2d(3, 4, 4, 1, 2)],
    ),
    "second dilated": (
        (2, 10, 9),
        [nn.Conv2d(2, 3, 3, 2, 1), nn.ReLU(), nn.Conv2d(3, 4, 3, 1, 2, dilation=2)],
    ),
    "grouped channels": (
        (2, 8, 8),
        [nn.Conv2d(2, 4, 3, 1, 1, groups=2), nn.ReLU(), nn.Conv2d(4, 6, 3, 2, 1, groups=2)],
    ),
    "scales": (
        (2, 8, 8),
        [
            Normalize([0.1, 0.2], [0.3, 0.5]),
            nn.Conv2d(2, 4, 3, 1, 1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 6, 3, 2, 1),
            nn.BatchNorm2d(6),
        ],
    ),
    "pooled": ((2, 8, 8), [nn.Conv2d(2, 4, 3, 1, 1), nn.ReLU(), nn.AvgPool2d(2)]),
    "pooled first": ((2, 9, 8), [nn.AvgPool2d(3, 1, 1), nn.ReLU(), nn.Conv2d(2, 3, 3, 2)]),
    "mlp": ((1, 2, 5), [nn.Flatten(), nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 6)]),
}


def stability(found):
    return ((-found.lb).clamp(min=0) * found.ub.clamp(min=0)).sum()


@pytest.fixture(params=NETS)
def example(request):
    torch.manual_seed(0)
    shape, layers = NETS[request.param]
    net = nn.Sequential(*layers).double().eval()
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.reset_parameters()
        if isinstance(layer, nn.BatchNorm2d):
            # (with negative scales too)
            layer.weight.data.normal_()
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
    x = torch.rand(3, *shape, dtype=torch.float64)
    return net.requires_grad_(), Corners(x - 0.1 * torch.rand_like(x), x + 0.1 * torch.rand_like(x))


def test_the_norms_are_the_zonotope_s(example):
    net, box = example
    exact, found, interval = Zonotope()(net, box), EXACT(net, box), Interval()(net, box)
    # The zonotope intersects with intervals.
    lb, ub = intersect((found.lb, found.ub), (interval.lb, interval.ub))
    torch.testing.assert_close(lb, exact.lb, rtol=0, atol=1e-12)
    torch.testing.assert_close(ub, exact.ub, rtol=0, atol=1e-12)


def trained_part(net):
    """The parameters behind the ReLU."""
    relu = next(i for i, layer in enumerate(net) if isinstance(layer, nn.ReLU))
    return list(net[relu + 1 :].parameters())


@pytest.mark.parametrize("few", [0.0, 2.0], ids=["by block", "by neuron"])
def test_the_gradient_with_a_frozen_prefix_is_that_without(example, few, monkeypatch):
    net, box = example
    last = trained_part(net)
    if not last:
        return  # (a pooling layer has nothing to train)
    expected = torch.autograd.grad(stability(EXACT(net, box)), last)
    monkeypatch.setattr(two_convolutions, "FEW", few)
    monkeypatch.setattr(two_convolutions, "ROWS", 7)
    monkeypatch.setattr(two_convolutions, "NEURONS", 5)
    net.requires_grad_(False)
    for weight in last:
        weight.requires_grad_()
    found = torch.autograd.grad(stability(EXACT(net, box)), last)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_all_gradients(example, close_to_differences):
    net, box = example
    close_to_differences(lambda: EXACT(net, box).ub.sum(), list(net.parameters()))


@pytest.mark.parametrize("few", [0.0, 2.0], ids=["by block", "by neuron"])
def test_skipping_stable_neurons_changes_no_unstable_one(example, few, monkeypatch):
    net, box = example
    monkeypatch.setattr(two_convolutions, "FEW", few)
    skip = Cauchy(projections=10**9, skip_stable=True)
    last = trained_part(net)
    net.requires_grad_(False)
    for weight in last:
        weight.requires_grad_()
    full, found, interval = EXACT(net, box), skip(net, box), Interval()(net, box)
    settled = (interval.lb >= 0) | (interval.ub <= 0)
    for mine, theirs, cheap in (
        (found.lb, full.lb, interval.lb),
        (found.ub, full.ub, interval.ub),
    ):
        torch.testing.assert_close(mine, torch.where(settled, cheap, theirs), rtol=0, atol=1e-12)
    if last:
        weights = (~settled).double()
        expected = torch.autograd.grad((full.ub * weights).sum(), last)
        mine = torch.autograd.grad((found.ub * weights).sum(), last)
        torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-12)


def test_cheaper_is_chosen():
    """A window of 25 pixels is cheaper than 50 projections; one of 25 x 32 inputs is not."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 32, 5, 2, 2),
        nn.ReLU(),
        nn.Conv2d(32, 16, 5, 2, 2),
        nn.ReLU(),
        nn.Conv2d(16, 16, 4, 2, 1),
    ).requires_grad_(False)
    x = torch.rand(1, 1, 28, 28)
    box = Corners(x - 0.1, x + 0.1)

    def twice(net):
        runs = [Cauchy(generator=torch.Generator().manual_seed(s))(net, box) for s in (1, 2)]
        return runs[0].lb, runs[1].lb

    assert torch.equal(*twice(net[:3]))
    assert not torch.equal(*twice(net))
