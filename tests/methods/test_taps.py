"""TAPS and STAPS: their limits, the order of the estimates, the connector."""

import dataclasses
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from maar.attacks.pgd import PGD
from maar.core.errors import UsageError
from maar.domains.bound import Corners, margins
from maar.domains.interval import Interval
from maar.methods.base import Batch, Stage
from maar.methods.ibp import IBP
from maar.methods.sabr import SABR
from maar.methods.schedules import Constant
from maar.methods.staps import STAPS
from maar.methods.taps import TAPS, connected
from maar.regions import Ball

STRONG = PGD(steps=40, step_size=0.1, loss="margin")


@pytest.fixture
def batch():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(27, 6), nn.ReLU(),
        nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3),
    )  # fmt: skip
    return Batch(
        net=net,
        x=torch.rand(5, 1, 6, 6),
        y=torch.tensor([0, 1, 2, 0, 1]),
        eps=0.1,
        stage=Stage("input", 1, Constant(0.1)),
        generator=torch.Generator().manual_seed(1),
    )


def gradients(method, batch):
    batch.generator.manual_seed(1)
    batch.memo.clear()
    total = torch.stack(list(method.loss(batch).values())).sum()
    return total, torch.autograd.grad(total, list(batch.net.parameters()))


def test_without_an_attacked_part_they_are_ibp_and_sabr(batch):
    torch.testing.assert_close(gradients(TAPS(suffix=0), batch), gradients(IBP(), batch))
    torch.testing.assert_close(
        gradients(STAPS(suffix=0, lam=0.3), batch), gradients(SABR(lam=0.3), batch)
    )


def test_staps_on_the_whole_ball_is_taps(batch):
    torch.testing.assert_close(
        gradients(STAPS(lam=1.0), batch), gradients(TAPS(), batch), rtol=0, atol=0
    )


@pytest.mark.parametrize("suffix", [1, 2])
def test_the_attack_finds_the_worst_corner_of_the_box_and_no_more(batch, suffix):
    """Behind the box lies a small network whose maximum is found by trying many points."""
    method = TAPS(suffix=suffix, latent=STRONG)
    out = method.outputs(batch)
    [(_, attacked)] = out.worst
    at = {1: 5, 2: 2}[suffix]
    front = Interval()(batch.net[:at], Ball(batch.x, batch.eps))
    C = margins(batch.y, 3)
    bounds = -Interval()(batch.net, Ball(batch.x, batch.eps), C).lb
    others = torch.arange(3) != batch.y[:, None]
    found = attacked[others].view(5, 2)
    assert bool((found <= bounds + 1e-5).all())
    width = front.lb.shape[1]
    if width > 8:
        points = torch.rand(4000, 5, width) * (front.ub - front.lb) + front.lb
    else:
        corners = torch.tensor(list(itertools.product([0.0, 1.0], repeat=width)))
        points = corners[:, None] * (front.ub - front.lb) + front.lb
    shape = (3, 3, 3) if suffix == 2 else (width,)
    z = batch.net[at:](points.detach().view(-1, *shape)).view(len(points), 5, 3)
    sampled = -(C @ z.unsqueeze(-1)).squeeze(-1).amin(0)
    assert bool((found >= sampled - 1e-3).float().mean() > 0.9)


def test_the_loss_is_the_product_and_its_gradients_are_weighted(batch):
    method = TAPS(weight=3.0)
    out = method.outputs(batch)
    [(_, attacked)] = out.worst
    taps, ibp = (F.cross_entropy(z, batch.y) for z in (attacked, out.of_box))
    weights = list(batch.net.parameters())
    of_taps = torch.autograd.grad(taps, weights, retain_graph=True)
    of_ibp = torch.autograd.grad(ibp, weights)
    total, found = gradients(method, batch)
    torch.testing.assert_close(total, taps * ibp)
    expected = [3 * ibp * a + taps * b for a, b in zip(of_taps, of_ibp, strict=True)]
    torch.testing.assert_close(list(found), expected)


def test_the_connector():
    """c = 0.5: all into the end where the point is, nothing beyond the middle."""
    lb = torch.zeros(1, 5, requires_grad=True)
    ub = torch.ones(1, 5, requires_grad=True)
    points = torch.tensor([[[0.0, 0.25, 0.5, 0.875, 1.0]]])
    out = connected(points, Corners(lb, ub), 0.5)
    assert torch.equal(out, points)
    out.sum().backward()
    torch.testing.assert_close(lb.grad, torch.tensor([[1.0, 0.5, 0.0, 0.0, 0.0]]))
    torch.testing.assert_close(ub.grad, torch.tensor([[0.0, 0.0, 0.0, 0.75, 1.0]]))


def test_a_box_without_width_takes_half_the_gradient_at_each_end():
    lb = torch.zeros(1, 2, requires_grad=True)
    ub = torch.tensor([[0.0, 1e-7]], requires_grad=True)
    connected(torch.zeros(1, 1, 2), Corners(lb, ub), 0.5).sum().backward()
    assert lb.grad.tolist() == ub.grad.tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize(("method", "until"), [(TAPS(), IBP()), (STAPS(lam=0.3), SABR(lam=0.3))])
def test_it_begins_when_eps_is_grown(batch, method, until):
    batch.at = {"grown": 0.99}
    torch.testing.assert_close(gradients(method, batch), gradients(until, batch))
    at_once = dataclasses.replace(method, anneal=False)
    assert gradients(at_once, batch)[0] != gradients(until, batch)[0]
    batch.at = {"grown": 1.0}
    assert gradients(method, batch)[0] != gradients(until, batch)[0]


def test_restarts_and_the_best_point_of_each_class_count(batch):
    """What is found for every class gets worse for the network, never better."""

    def found(**settings):
        batch.generator.manual_seed(1)
        batch.memo.clear()
        latent = dataclasses.replace(TAPS().latent, steps=3, step_size=0.7, **settings)
        [(_, attacked)] = TAPS(suffix=2, latent=latent).outputs(batch).worst
        return attacked

    last = found()
    for better in (found(keep="best"), found(restarts=8), found(restarts=8, keep="best")):
        assert bool((better >= last - 1e-6).all())
        assert bool((better > last + 1e-6).any())
    assert torch.equal(found(random_start=False), found(random_start=False))
    assert not torch.equal(found(random_start=False), last)


@pytest.mark.parametrize("name", ["targeted", "early_exit"])
def test_what_makes_no_sense_for_each_class_is_refused(name):
    with pytest.raises(UsageError, match=f"latent.{name} = true"):
        TAPS(latent=PGD(steps=2, **{name: True}))


def test_a_suffix_of_the_whole_network_is_refused(batch):
    with pytest.raises(UsageError, match=r"suffix = 3 leaves no ReLU .*less than the 3"):
        TAPS(suffix=3).loss(batch)
