"""Boxes: the latent box of TAPS and SABR's small box."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maar.core.errors import UsageError
from maar.regions import Ball, Box, LatentBox, SmallBox


def some_ball(eps=0.1, seed=0):
    x = torch.rand(4, 2, 5, generator=torch.Generator().manual_seed(seed))
    x[0, 0], x[1, 1] = 0.0, 1.0
    return Ball(x, eps)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), decades=st.integers(0, 20))
def test_point_never_leaves_the_box_by_rounding(seed, decades):
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randn(2, 2, 300, generator=generator)
    ends *= 10 ** (decades * (torch.rand(ends.shape, generator=generator) - 0.5))
    lb, ub = ends.sort(0).values
    box = Box(lb, ub)
    for e in (*box.random_start(generator), torch.ones_like(lb), -torch.ones_like(lb)):
        point = box.point((e,))
        assert (point >= lb).all()
        assert (point <= ub).all()
    assert torch.equal(box.point((torch.ones_like(lb),)), ub)
    assert torch.equal(box.point((-torch.ones_like(lb),)), lb)


def test_latent_box_lets_gradients_into_its_bounds():
    lb = torch.zeros(2, 3, requires_grad=True)
    ub = torch.ones(2, 3, requires_grad=True)
    box = LatentBox(lb, ub, at=4)
    assert box.at == 4
    box.point((torch.full((2, 3), 0.5),)).sum().backward()
    assert lb.grad is not None
    assert ub.grad is not None
    assert torch.allclose(lb.grad, torch.full((2, 3), 0.25))
    assert torch.allclose(ub.grad, torch.full((2, 3), 0.75))


def test_box_bounds_of_different_shape_are_refused():
    with pytest.raises(UsageError, match="differ in shape"):
        Box(torch.zeros(2, 3), torch.zeros(2, 4))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    eps=st.sampled_from([0.0, 2 / 255, 0.1, 0.7]),
    ratio=st.floats(0, 1),
)
def test_small_box_stays_in_the_ball_and_holds_its_point(seed, eps, ratio):
    ball = some_ball(eps, seed)
    e = ball.random_start(torch.Generator().manual_seed(seed))
    point = ball.point(e)
    box = SmallBox(ball, e, ratio)
    assert (box.lb >= ball.lb).all()
    assert (box.ub <= ball.ub).all()
    assert (box.lb <= point + 1e-6).all()
    assert (box.ub >= point - 1e-6).all()
    # The same part of the ball everywhere, also where the pixel range cuts.
    assert torch.allclose(box.ub - box.lb, ratio * (ball.ub - ball.lb), atol=1e-6)


def test_small_box_of_the_whole_radius_is_the_ball():
    ball = some_ball()
    box = SmallBox(ball, ball.random_start(torch.Generator().manual_seed(1)), 1.0)
    assert torch.equal(box.lb, ball.lb)
    assert torch.equal(box.ub, ball.ub)


def test_small_box_around_a_point_or_its_e_is_the_same():
    ball = some_ball()
    e = ball.random_start(torch.Generator().manual_seed(1))
    one, other = SmallBox(ball, e, 0.4), SmallBox(ball, ball.point(e), 0.4)
    assert torch.equal(one.lb, other.lb)
    assert torch.equal(one.ub, other.ub)


def test_small_box_by_hand():
    """x = 0.5, eps = 0.1, tau = 0.04: the centre 0.59 moves to 0.56, the centre 0.48 stays."""
    ball = Ball(torch.tensor([[0.5, 0.5]]), 0.1)
    box = SmallBox(ball, torch.tensor([[0.59, 0.48]]), 0.4)
    assert torch.allclose(box.lb, torch.tensor([[0.52, 0.44]]), atol=1e-6)
    assert torch.allclose(box.ub, torch.tensor([[0.60, 0.52]]), atol=1e-6)


def test_small_box_on_a_black_pixel():
    """x = 0, eps = 0.1: the ball is [0, 0.1], a box of 0.4 of it is 0.04 wide."""
    ball = Ball(torch.zeros(1, 3), 0.1)
    box = SmallBox(ball, torch.tensor([[0.0, 0.05, 0.1]]), 0.4)
    assert torch.allclose(box.lb, torch.tensor([[0.0, 0.03, 0.06]]), atol=1e-6)
    assert torch.allclose(box.ub, torch.tensor([[0.04, 0.07, 0.1]]), atol=1e-6)


@pytest.mark.parametrize("ratio", [-0.1, 1.01, float("nan")])
def test_bad_ratio_is_named(ratio):
    ball = some_ball()
    with pytest.raises(UsageError, match="ratio"):
        SmallBox(ball, ball.zero(), ratio)
