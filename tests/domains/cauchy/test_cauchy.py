"""The Cauchy estimate: unsound and said to be; exact where it can be; right on average."""

import pytest
import torch
from torch import nn

from maar.domains.bound import Corners, margins
from maar.domains.cauchy import projections
from maar.domains.cauchy.estimate import Cauchy
from maar.domains.interval import Interval
from maar.domains.zonotope import Zonotope


def seeded(seed=0, **settings):
    return Cauchy(generator=torch.Generator().manual_seed(seed), **settings)


@pytest.fixture
def small():
    torch.manual_seed(2)
    net = nn.Sequential(
        nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3)
    ).double()
    x = torch.rand(2, 6, dtype=torch.float64)
    return net, Corners(x - 0.3, x + 0.3)


def radius(pair):
    return (pair[1] - pair[0]) / 2


def test_it_says_that_it_is_an_estimate(small):
    net, box = small
    assert Cauchy.sound is False
    exact, estimate = Zonotope()(net, box), seeded(projections=50)(net, box)
    below = torch.cat([estimate.ub < exact.ub, estimate.lb > exact.lb])
    assert bool(below.any())  # that is why


def test_the_first_layer_is_exact(small):
    net, box = small
    exact, estimate = Zonotope()(net, box), seeded(projections=1)(net, box)
    torch.testing.assert_close(estimate.pre[0], exact.pre[0])


def test_the_newest_group_is_exact(small):
    """With one projection the older groups are all noise, which is at times next to nothing.

    What is left is |W| mu, and never less.
    """
    net, box = small
    lb, ub = Zonotope()(net, box).pre[0]
    mu = torch.where((lb < 0) & (ub > 0), -ub * lb / (ub - lb) / 2, 0.0)
    newest = mu @ net[2].weight.abs().T
    bounds = (seeded(s, projections=1, two_matrices=False) for s in range(300))
    radii = torch.stack([radius(bound(net, box).pre[1]) for bound in bounds])
    assert bool((radii >= newest - 1e-12).all())
    assert bool((radii.amin(0) <= 1.1 * newest + 0.01).all())


@pytest.mark.parametrize("per_group", [True, False])
def test_many_projections_come_close_to_the_zonotope(small, per_group):
    """The spread of a median of k is pi / (2 sqrt(k)): 1.2 % for k = 17,000."""
    net, box = small
    exact = Zonotope()(net, box)
    estimate = seeded(projections=17_001, per_group=per_group)(net, box)
    for mine, theirs in [*zip(estimate.pre, exact.pre, strict=True), (
        (estimate.lb, estimate.ub), (exact.lb, exact.ub))]:  # fmt: skip
        torch.testing.assert_close(radius(mine), radius(theirs), rtol=0.06, atol=0.0)
    ratio = (radius((estimate.lb, estimate.ub)) / radius((exact.lb, exact.ub))).mean()
    assert ratio.item() == pytest.approx(1, abs=0.03)


def test_residual_blocks_and_specifications(residual_net):
    """Branches that meet share error terms: their projections are added, not their norms."""
    net, box = residual_net
    # so small that no interval is tighter than the zonotope
    box = Corners(box.lb + 0.09, box.ub - 0.09)
    C = margins(torch.tensor([0, 2]), 3, torch.float64)
    exact = Zonotope()(net, box, C)
    estimate = seeded(projections=4001)(net, box, C)
    for mine, theirs in zip(estimate.pre, exact.pre, strict=True):
        wide = radius(theirs)
        seen = wide > 0  # (behind dead ReLUs nothing moves)
        assert ((radius(mine) - wide) / wide)[seen].abs().mean().item() < 0.05
    torch.testing.assert_close(
        estimate.lb, exact.lb, rtol=0, atol=0.1 * radius((exact.lb, exact.ub)).max().item()
    )


def test_the_generator_decides(small):
    net, box = small
    assert torch.equal(seeded(1)(net, box).lb, seeded(1)(net, box).lb)
    assert not torch.equal(seeded(1)(net, box).lb, seeded(2)(net, box).lb)


def test_gradients(residual_net, close_to_differences):
    net, box = residual_net
    C = margins(torch.tensor([0, 2]), 3, torch.float64)
    close_to_differences(lambda: seeded()(net, box, C).lb.sum(), list(net.parameters()))


def test_what_is_known_is_used(small):
    net, box = small
    exact = Zonotope()(net, box)
    found = seeded()(net, box, known=exact.pre)
    for mine, theirs in zip(found.pre, exact.pre, strict=True):
        assert bool((mine[0] >= theirs[0] - 1e-12).all())
        assert bool((mine[1] <= theirs[1] + 1e-12).all())


def test_projections_some_at_a_time_are_the_same(monkeypatch):
    """Neither the layout nor the size of a piece changes the estimate."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, 1, 1), nn.ReLU(), nn.Conv2d(4, 5, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(5, 6, 2), nn.ReLU(), nn.Flatten(), nn.Linear(54, 7), nn.ReLU(), nn.Linear(7, 3),
    ).double()  # fmt: skip
    x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    box = Corners(x - 0.1, x + 0.1)
    whole = seeded(two_matrices=False)(net, box)
    monkeypatch.setattr(projections, "AT_A_TIME", 3000)
    pieces = seeded(two_matrices=False)(net, box)
    torch.testing.assert_close(pieces.lb, whole.lb, rtol=0, atol=1e-12)
    torch.testing.assert_close(pieces.pre, whole.pre, rtol=0, atol=1e-12)


def test_the_estimate_is_the_median_of_plain_products():
    """By the definition, with matrices: the numbers drawn are the generator's, in order."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    x = torch.rand(2, 4, dtype=torch.float64)
    found = seeded(7, two_matrices=False)(net, Corners(x - 0.5, x + 0.5))
    uniform = torch.rand(50, 4, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    noise = torch.tan(torch.pi * (uniform - 0.5))
    lb, ub = found.pre[0]
    unstable = (lb < 0) & (ub > 0)
    slope = torch.where(unstable, ub / (ub - lb), (lb >= 0).double())
    mu = torch.where(unstable, -ub * lb / (ub - lb) / 2, 0.0)
    old = net[2].weight * slope[:, None] @ net[0].weight * 0.5 @ noise.T
    expected = old.abs().median(2).values + mu @ net[2].weight.abs().T
    torch.testing.assert_close(radius((found.lb, found.ub)), expected)


def test_what_is_known_is_not_estimated(small):
    net, box = small
    exact = Zonotope()(net, box)
    found = seeded()(net, box, known=exact.pre)
    torch.testing.assert_close(found.pre, exact.pre, rtol=0, atol=0)


@pytest.mark.parametrize("per_group", [True, False])
def test_skipping_stable_neurons_changes_no_unstable_one(small, per_group):
    net, box = small
    box = Corners(box.lb + 0.25, box.ub - 0.25)
    settings = {"per_group": per_group, "two_matrices": False}
    full = seeded(**settings)(net[:3], box)
    found = seeded(skip_stable=True, **settings)(net[:3], box)
    interval = Interval()(net[:3], box)
    settled = (interval.lb >= 0) | (interval.ub <= 0)
    assert bool(settled.any())
    assert not bool(settled.all())
    torch.testing.assert_close(found.lb, torch.where(settled, interval.lb, full.lb))
    torch.testing.assert_close(found.ub, torch.where(settled, interval.ub, full.ub))
