"""L2 balls: points inside in exact arithmetic, bounds against sampling and the dual norm."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import maar
from maar.core.errors import UsageError
from maar.domains.backward import Backward
from maar.regions.l2_ball import L2Ball


def ball(x, eps, span=(0.0, 1.0)):
    return L2Ball(x, eps, *(torch.tensor(end, dtype=torch.float64) for end in span))


def squared(one, other) -> Fraction:
    pairs = zip(one.flatten().tolist(), other.flatten().tolist(), strict=True)
    return sum(((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs), Fraction(0))


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([1e-7, 0.01, 0.5, 1 / 3, 3.0, 100.0]),
    st.sampled_from([1.0, 50.0]),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([1, 5, 200]),
)
def test_points_are_inside(seed, eps, size, dtype, count):
    generator = torch.Generator().manual_seed(seed)
    x = (size * torch.rand(3, count, generator=generator)).to(dtype)
    region = ball(x, eps, (0.0, size))
    starts = [region.random_start(generator), (torch.ones_like(x),), (1e-3 * torch.ones_like(x),)]
    e = region.ascend(starts[0][0].clone(), torch.randn(x.shape, generator=generator).to(x), 0.4)
    for errors in (*starts, (e,)):
        points = region.point(errors)
        assert ((points >= 0) & (points <= size)).all()
        assert all(squared(p, q) <= Fraction(eps) ** 2 for p, q in zip(points, x, strict=True))
    chosen = region.select(torch.tensor([2, 0]))
    assert torch.equal(chosen.point((e[[2, 0]],)), region.point((e,))[[2, 0]])


def test_a_point_that_is_not_shortened_would_be_seen(monkeypatch):
    x = torch.full((1, 50), 0.5)
    region = ball(x, 0.1)
    region.inner = 0.1 * (1 + 1e-6)
    assert squared(region.point((torch.ones_like(x),))[0], x[0]) > Fraction(0.1) ** 2


def affine(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).requires_grad_(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(5))
def test_an_affine_network_has_the_dual_norm(seed, dtype):
    net = affine(seed).to(dtype)
    x = torch.rand(2, 3, 2, 2, generator=torch.Generator().manual_seed(seed)).to(dtype)
    found = maar.bounds(net, x, 0.05, norm="l2", span=None, rounding=True)
    weight, bias = net[1].weight, net[1].bias
    for n in range(2):
        for k in range(4):
            middle = Fraction(bias[k].item()) + sum(
                Fraction(a) * Fraction(b)
                for a, b in zip(weight[k].tolist(), x[n].flatten().tolist(), strict=True)
            )
            reach = Fraction(0.05) ** 2 * sum(Fraction(a) ** 2 for a in weight[k].tolist())
            below = middle - Fraction(found.lb[n, k].item())
            above = Fraction(found.ub[n, k].item()) - middle
            assert min(below, above) > 0
            assert min(below, above) ** 2 >= reach
            assert float(below) < float(reach) ** 0.5 * 1.001 + 1e-5


def network(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(36, 20), nn.ReLU(),
            nn.Linear(20, 3),
        ).requires_grad_(False).eval()  # fmt: skip
    for layer in (net[0], net[3], net[5]):
        layer.bias.normal_(0, 0.1, generator=torch.Generator().manual_seed(seed))
        layer.weight.mul_(2)
    return net


def outside(net, region, lb, ub) -> int:
    """How many outputs of sampled points, some of them attacked, lie outside the bounds."""
    generator = torch.Generator().manual_seed(0)
    bad = 0
    for k in range(3):
        for sign in (-1, 1):
            e = region.random_start(generator)[0]
            for _ in range(30):
                e = e.detach().requires_grad_()
                z = net.double()(region.point((e,)))
                bad += int(((z < lb) | (z > ub)).sum())
                (slope,) = torch.autograd.grad(sign * z[:, k].sum(), e)
                e = region.ascend(e.detach(), slope, 0.3)
    return bad


CASES = [(seed, method) for seed in range(3) for method in ("crown_ibp", "crown", "alpha_crown")]


@pytest.mark.parametrize(("seed", "method"), CASES)
def test_bounds_hold_and_are_tighter_than_those_of_the_box(seed, method):
    net = network(seed)
    x = torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
    found = maar.bounds(net, x, 0.3, norm="l2", method=method, rounding=True)
    box = maar.bounds(net, x, 0.3, method=method, rounding=True)
    assert (found.lb >= box.lb - 1e-4).all()
    share = 0.97 if method == "crown_ibp" else 0.8
    assert (found.ub - found.lb).mean() < share * (box.ub - box.lb).mean()
    region = ball(x.double(), 0.3)
    assert not outside(net, region, found.lb.double(), found.ub.double())


@pytest.mark.parametrize("bug", ["radius", "centre"])
def test_planted_bugs_are_seen(bug, monkeypatch):
    honest = Backward._nearer

    def wrong(self, rows, middle, reach):
        centre, radius = self.boxes.dual
        dual = (centre, 0.5 * radius) if bug == "radius" else (centre + 0.1, radius)
        monkeypatch.setattr(self.boxes, "dual", dual)
        return honest(self, rows, middle, reach)

    monkeypatch.setattr(Backward, "_nearer", wrong)
    seen = 0
    for seed in range(3):
        net, x = network(seed), torch.rand(4, 1, 6, 6)
        found = maar.bounds(net, x, 0.02, norm="l2", rounding=True)
        seen += outside(net, ball(x.double(), 0.02), found.lb.double(), found.ub.double())
    assert seen


def test_the_attack_and_the_bounds_agree():
    net = network(0)
    x = torch.rand(20, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    y = net(x).argmax(1)
    broken = certified = 0
    for eps in (0.05, 0.5, 3.0):
        C = nn.functional.one_hot(y, 3)[:, None] - torch.eye(3)
        lb = maar.bounds(net, x, eps, norm="l2", C=C, rounding=True).lb
        proved = (lb + nn.functional.one_hot(y, 3)).min(1).values > 0
        found = maar.attack(net, x, y, eps, norm="l2", restarts=3)
        assert ((found.x_adv - x).flatten(1).norm(dim=1) <= eps * (1 + 1e-6)).all()
        assert not (found.success & proved).any()
        broken += int(found.success.sum())
        certified += int(proved.sum())
    assert broken > 10
    assert certified > 10


def test_what_does_not_know_the_norm_refuses_it():
    x = torch.rand(1, 1, 6, 6)
    for method in ("interval", "zonotope"):
        with pytest.raises(UsageError, match="does not know it"):
            maar.bounds(network(0), x, 0.1, norm="l2", method=method)
    with pytest.raises(UsageError, match="unknown norm 'l1'"):
        maar.attack(network(0), x, [0], 0.1, norm="l1")
    with pytest.raises(UsageError, match="one eps and no mask"):
        maar.bounds(network(0), x, 0.1, norm="l2", mask=[[1]])
