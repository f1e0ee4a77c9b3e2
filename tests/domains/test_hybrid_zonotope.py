"""The hybrid zonotope: by hand, against intervals and points of the box, and its gradients."""

import pytest
import torch
from torch import nn

from maar.domains.bound import Corners
from maar.domains.hybrid_zonotope import HybridZonotope
from maar.domains.interval import Interval
from maar.domains.zonotope import Zonotope


def test_by_hand(worked):
    """v in [-1, 3]: h is in the band v + 1/2 +- 1/2, so z1 = 2 x1 + 3 +- 1 and z2 = 2 x2 +- 1."""
    net, box = worked
    found = HybridZonotope(terms=2)(net, box)
    # Intervals have [0, 6] and [-3, 3]; the error terms say 3 +- 3 and 0 +- 3: both the same here.
    torch.testing.assert_close(found.lb, torch.tensor([[0.0, -3.0]]).double())
    torch.testing.assert_close(found.ub, torch.tensor([[6.0, 3.0]]).double())
    with torch.no_grad():
        net[0].bias.fill_(1.8)  # v in [-0.2, 3.8]: the band is narrow, and x1 cancels in z2
    found = HybridZonotope(terms=2)(net, box)
    # relu(v) in v + 0.1 +- 0.1, so z1 = 2 x1 + 3.8 +- 0.2 and z2 = 2 x2 +- 0.2
    torch.testing.assert_close(found.lb, torch.tensor([[1.6, -2.2]]).double())
    torch.testing.assert_close(found.ub, torch.tensor([[6.0, 2.2]]).double())


def test_a_ReLU_that_is_mostly_off_becomes_a_box(worked):
    net, box = worked
    with torch.no_grad():
        net[0].bias.fill_(-1)  # v in [-3, 1]: h in [0, 1], whatever x is
    found = HybridZonotope(terms=2)(net, box)
    torch.testing.assert_close(found.lb, torch.tensor([[0.0, -1.0]]).double())
    torch.testing.assert_close(found.ub, torch.tensor([[2.0, 1.0]]).double())


@pytest.mark.parametrize("terms", [0, 1, 5, 1000])
def test_it_encloses_the_network_within_the_intervals(residual_net, terms):
    net, box = residual_net
    found, interval = HybridZonotope(terms)(net, box), Interval()(net, box)
    assert bool((found.lb >= interval.lb - 1e-12).all() and (found.ub <= interval.ub + 1e-12).all())
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        part = torch.rand(box.lb.shape, generator=generator, dtype=torch.float64)
        for e in (part, part.round()):
            z = net(torch.lerp(box.lb, box.ub, e))
            assert bool((found.lb <= z + 1e-9).all() and (z <= found.ub + 1e-9).all())


def test_without_error_terms_it_is_the_interval_domain(residual_net):
    net, box = residual_net
    found, interval = HybridZonotope(terms=0)(net, box), Interval()(net, box)
    torch.testing.assert_close(found.lb, interval.lb)
    torch.testing.assert_close(found.pre, interval.pre)


def test_where_no_ReLU_is_unstable_all_terms_are_exact(residual_net):
    net, box = residual_net
    middle = (box.lb + box.ub) / 2
    tiny = Corners(middle - 1e-6, middle + 1e-6)
    exact = Zonotope()(net, tiny)
    assert not any(bool(((lb < 0) & (ub > 0)).any()) for lb, ub in exact.pre)
    found = HybridZonotope(terms=1000)(net, tiny)
    torch.testing.assert_close(found.lb, exact.lb, rtol=0, atol=1e-12)
    assert bool((Interval()(net, tiny).lb < exact.lb - 1e-8).all())


def test_more_terms_help():
    """On a deep linear net each correlated pixel makes the bounds tighter."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)).double()
    box = Corners(-torch.ones(1, 6).double(), torch.linspace(0.5, 1, 6)[None].double())
    widths = []
    for terms in (0, 2, 4, 6):
        found = HybridZonotope(terms)(net, box)
        widths.append((found.ub - found.lb).sum().item())
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < widths[0]


def test_known_bounds_are_used(residual_net):
    net, box = residual_net
    pre = Zonotope()(net, box).pre
    found = HybridZonotope(terms=3)(net, box, known=pre)
    for (lb, ub), (known_lb, known_ub) in zip(found.pre, pre, strict=True):
        assert bool((lb >= known_lb).all() and (ub <= known_ub).all())


def test_gradients(residual_net, close_to_differences):
    net, box = residual_net
    C = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(1)).double()
    weights = [p for p in net.parameters() if p.dim() > 1]
    close_to_differences(lambda: HybridZonotope(terms=3)(net, box, C).lb.sum(), weights)
