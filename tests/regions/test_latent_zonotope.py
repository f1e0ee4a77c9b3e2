"""COLT's region: holds every true activation, is affine in e, and is one forward pass."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from maar.core.errors import UsageError
from maar.networks.layers import Normalize, Residual
from maar.regions import Ball, LatentZonotope

SHAPE = (2, 5, 5)


def block(generator_seed):
    torch.manual_seed(generator_seed)
    return Residual(
        nn.Sequential(nn.Conv2d(4, 4, 3, 1, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 1, 1)),
        nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU()),
    )


PREFIXES = {
    "conv": lambda: [Normalize([0.4, 0.5], [0.2, 0.3]), nn.Conv2d(2, 4, 3, 2, 1), nn.ReLU()],
    "two": lambda: [nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 2), nn.ReLU()],
    "fc": lambda: [nn.Flatten(), nn.Linear(50, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU()],
    "bn_pool": lambda: [nn.Conv2d(2, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2)],
    "residual": lambda: [nn.Conv2d(2, 4, 3), nn.ReLU(), block(3), nn.ReLU()],
    "affine_only": lambda: [nn.Conv2d(2, 4, 3)],
}


def make_prefix(name, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        prefix = nn.Sequential(*PREFIXES[name]())
        for layer in prefix.modules():
            if isinstance(layer, nn.BatchNorm2d):
                assert layer.running_mean is not None
                assert layer.running_var is not None
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.3, 2)
    return prefix.eval().double()


def interval(layer, lb, ub, pre):
    """Interval bounds by each layer's dense Jacobian; notes the bounds before each ReLU."""
    if isinstance(layer, nn.Sequential):
        for child in layer:
            lb, ub = interval(child, lb, ub, pre)
        return lb, ub
    if isinstance(layer, Residual):
        body, shortcut = interval(layer.body, lb, ub, pre), interval(layer.shortcut, lb, ub, pre)
        return body[0] + shortcut[0], body[1] + shortcut[1]
    if isinstance(layer, nn.ReLU):
        pre.append((lb, ub))
        return lb.relu(), ub.relu()
    rows = []
    for low, high in zip(lb, ub, strict=True):
        centre, radius = (low + high)[None] / 2, (high - low)[None] / 2
        slope = torch.autograd.functional.jacobian(lambda v: layer(v)[0], centre)
        assert isinstance(slope, torch.Tensor)
        spread = (slope.abs() * radius).flatten(slope.dim() - radius.dim()).sum(-1)
        rows.append((layer(centre)[0] - spread, layer(centre)[0] + spread))
    return torch.stack([low for low, _ in rows]), torch.stack([high for _, high in rows])


def make_region(name, seed, eps):
    prefix = make_prefix(name, seed)
    for parameter in prefix.parameters():
        parameter.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(2, *SHAPE, generator=generator, dtype=torch.float64)
    ball = Ball(x, eps)
    pre = []
    interval(prefix, ball.lb, ball.ub, pre)
    return prefix, ball, pre, LatentZonotope(prefix, ball, pre)


def errors_of(prefix, region, e0):
    """The e whose point is the true activation of ball.point(e0): solve for e_j at each ReLU."""
    bands = iter(region.bands)
    found = [e0]

    def walk(layer, v):
        if isinstance(layer, nn.Sequential):
            for child in layer:
                v = walk(child, v)
            return v
        if isinstance(layer, Residual):
            body = walk(layer.body, v)
            return body + walk(layer.shortcut, v)
        if isinstance(layer, nn.ReLU):
            lam, mu = next(bands)
            e = torch.where(mu > 0, (v.relu() - lam * v) / mu.clamp_min(1e-300) - 1, 0)
            found.append(e)
            return v.relu()
        return layer(v)

    activation = walk(prefix, region.ball.point((e0,)))
    return tuple(found), activation


cases = {
    "name": st.sampled_from(sorted(PREFIXES)),
    "seed": st.integers(0, 10**6),
    "eps": st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
}


@settings(max_examples=60, deadline=None)
@given(**cases)
def test_every_true_activation_is_a_point(name, seed, eps):
    prefix, ball, _, region = make_region(name, seed, eps)
    generator = torch.Generator().manual_seed(seed)
    (inside,) = ball.random_start(generator)
    for e0 in (inside, inside.sign()):
        e, activation = errors_of(prefix, region, e0)
        assert torch.allclose(activation, prefix(ball.point((e0,))), atol=1e-12)
        for group in e:
            assert group.abs().max() <= 1 + 1e-6
        assert torch.allclose(region.point(e), activation, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(**cases)
def test_points_fill_a_zonotope(name, seed, eps):
    """Affine in e (so a zonotope), and each point in the interval hull a +- sum |A|."""
    _, _, _, region = make_region(name, seed, eps)
    generator = torch.Generator().manual_seed(seed)
    first, second = (region.random_start(generator) for _ in range(2))
    middle = tuple((a + b) / 2 for a, b in zip(first, second, strict=True))
    expected = (region.point(first) + region.point(second)) / 2
    assert torch.allclose(region.point(middle), expected, atol=1e-10)

    def flat_sum_of_absolute_rows(output_index):
        leaves = tuple(group.requires_grad_() for group in region.zero())
        out = region.point(leaves).flatten(1)[:, output_index].sum()
        gradients = torch.autograd.grad(out, leaves, allow_unused=True)
        return sum(g.abs().flatten(1).sum(1) for g in gradients if g is not None)

    centre = region.point(region.zero()).flatten(1)
    for index in (0, centre.shape[1] // 2, centre.shape[1] - 1):
        radius = flat_sum_of_absolute_rows(index)
        for e in (first, second):
            distance = (region.point(e).flatten(1)[:, index] - centre[:, index]).abs()
            assert (distance <= radius + 1e-10).all()


def test_relaxation_by_hand():
    """One ReLU, v = 3 e in [-1, 2] shifted: lam = 2/3, mu = 1/3."""
    prefix = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    with torch.no_grad():
        prefix[0].weight.fill_(3.0)
        prefix[0].bias.fill_(-1.0)
    ball = Ball(torch.tensor([[0.5]]), 0.5)
    pre = [(torch.tensor([[-1.0]]), torch.tensor([[2.0]]))]
    e = (torch.tensor([[0.2]]), torch.tensor([[-0.4]]))
    v = 3 * 0.6 - 1
    deepz = LatentZonotope(prefix, ball, pre)
    assert deepz.point(e).item() == pytest.approx(2 / 3 * v + 1 / 3 * 0.6, abs=1e-6)


def test_stable_neurons_pass_or_vanish():
    prefix = nn.Sequential(nn.Identity(), nn.ReLU())
    ball = Ball(torch.tensor([[0.5, 0.5, 0.5]]), 0.1)
    bounds = (torch.tensor([[0.4, -2.0, 0.0]]), torch.tensor([[0.6, -1.0, 0.6]]))
    region = LatentZonotope(prefix, ball, [bounds])
    point = region.point((torch.ones(1, 3), torch.ones(1, 3)))
    assert torch.allclose(point, torch.tensor([[0.6, 0.0, 0.6]]), atol=1e-6)


def test_groups_and_cut():
    prefix, _, _, region = make_region("residual", 0, 0.1)
    assert region.at == len(prefix)
    # The ball, the first ReLU, the block's body, its shortcut, the last ReLU.
    assert [tuple(shape) for shape in region.shapes] == [(2, *SHAPE)] + [(2, 4, 3, 3)] * 4
    assert LatentZonotope(prefix, region.ball, make_region("residual", 0, 0.1)[2], at=7).at == 7


def test_one_pass_per_point():
    prefix, _, _, region = make_region("two", 0, 0.3)
    calls = []
    for layer in prefix:
        layer.register_forward_hook(lambda *_: calls.append(1))
    region.point(region.zero())
    assert len(calls) == 2  # the two convolutions; ReLUs are replaced


@pytest.mark.parametrize("name", sorted(PREFIXES))
def test_select(name):
    _, _, _, region = make_region(name, 5, 0.2)
    e = region.random_start(torch.Generator().manual_seed(0))
    index = torch.tensor([1, 1, 0])
    part = region.select(index)
    assert len(part) == 3
    expected = region.point(e)[index]
    assert torch.allclose(part.point(tuple(g[index] for g in e)), expected, atol=1e-12)


def test_bad_arguments_are_named():
    prefix, ball, pre, region = make_region("two", 0, 0.1)
    with pytest.raises(UsageError, match="2 ReLU layers, but pre gives bounds of 1"):
        LatentZonotope(prefix, ball, pre[:1])
    with pytest.raises(UsageError, match="given for a ReLU layer of shape"):
        LatentZonotope(prefix, ball, pre[::-1]).point(region.zero())
    pool = nn.Sequential(nn.Sequential(nn.Conv2d(2, 2, 1), nn.MaxPool2d(2)), nn.ReLU())
    with pytest.raises(UsageError, match=r"layer 0\.1 is a MaxPool2d.*supported: Conv2d"):
        LatentZonotope(pool, ball, pre[:1])
    norm = nn.Sequential(nn.BatchNorm2d(2), nn.ReLU())
    with pytest.raises(UsageError, match="layer 0 is a BatchNorm2d in training mode"):
        LatentZonotope(norm, ball, pre[:1])
