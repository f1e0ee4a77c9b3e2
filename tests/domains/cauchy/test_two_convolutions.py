"""A sample of a norm's terms: without bias, with the promised spread, with its own gradient."""

import pytest
import torch
from torch import nn

from maar.domains.affine import conv_of
from maar.domains.bound import Corners
from maar.domains.cauchy.estimate import Cauchy
from maar.domains.cauchy.two_convolutions import TwoConvolutions


def example(first=None, second=None, scale=None, images=3):
    chance = torch.Generator().manual_seed(1)
    torch.manual_seed(0)
    first = first or nn.Conv2d(2, 8, 5, 2, 2)
    second = second or nn.Conv2d(8, 6, 4, 2, 1)
    like = first(torch.zeros(images, first.in_channels, 16, 14))
    if scale is None:
        scale = torch.rand(like.shape, generator=chance)
    radius = 0.1 * torch.rand(images, first.in_channels, 16, 14, generator=chance)
    convs = [conv_of(conv.requires_grad_(False), conv.in_channels) for conv in (first, second)]
    return TwoConvolutions(convs[0], radius, scale, convs[1])


def test_all_columns_are_the_norm():
    two = example()
    assert two.columns == 11 * 11 * 2
    every = two.norms(None, torch.arange(two.columns))
    torch.testing.assert_close(every, two.norms(None))


@pytest.mark.parametrize("kind", ["plain", "dilated"])
def test_the_estimate_has_no_bias_and_the_spread_of_projections(kind):
    dilated = nn.Conv2d(2, 8, 3, 1, 1, dilation=2), nn.Conv2d(8, 6, 3, 2, 1)
    two = example(*(dilated if kind == "dilated" else ()))
    exact, chance, drawn = two.norms(None), torch.Generator().manual_seed(0), []
    for _ in range(400):
        sample = two.sample(50, None, chance)
        assert len(sample) < two.columns / 3
        drawn.append(two.norms(None, sample) / exact)
    ratio = torch.stack(drawn)
    assert ratio.mean().item() == pytest.approx(1, abs=0.01)
    # pi / (2 sqrt(50)) = 0.22
    assert ratio.std(0).mean().item() == pytest.approx(0.22, abs=0.03)


def test_terms_that_differ_much_need_more_columns():
    plain = example()
    few = plain.scale * (torch.rand(plain.scale.shape) < 0.02)
    chance = torch.Generator().manual_seed(0)
    some = len(plain.sample(50, None, chance))
    assert len(example(scale=few).sample(50, None, chance)) > 1.5 * some
    assert len(example(scale=few * 0).sample(50, None, chance)) == plain.columns


def test_the_gradient_is_that_of_the_sample():
    """With the prefix frozen it is found block by block; with all trained autograd finds it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 5, 2, 2), nn.ReLU(), nn.Conv2d(8, 6, 4, 2, 1)).double()
    x = torch.rand(3, 1, 16, 16, dtype=torch.float64)
    gradients, bounds = [], []
    for frozen in (True, False):
        net[0].requires_grad_(not frozen)
        net.zero_grad()
        chance = torch.Generator().manual_seed(3)
        found = Cauchy(generator=chance, sampled=True)(net, Corners(x - 0.3, x + 0.3))
        (found.ub.square().sum() - found.lb.sum()).backward()
        gradients.append(net[2].weight.grad.clone())
        bounds.append(found.ub.detach())
    exact = Cauchy(projections=10**9)(net, Corners(x - 0.3, x + 0.3)).ub
    assert not torch.allclose(bounds[0], exact)
    torch.testing.assert_close(bounds[0], bounds[1])
    torch.testing.assert_close(gradients[0], gradients[1])
