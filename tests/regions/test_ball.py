"""The ball: enclosed by lb, ub and never left by a point, as real numbers and not just nearly."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.regions import Ball

# float64 holds sums of these float32 numbers exactly enough: what is left is below 1e-16.
EXACT = torch.float64


def images(seed, n=3, shape=(1, 4, 5)):
    """Pixels with many black, white and 8-bit values, as in real images."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, *shape, generator=generator)
    kind = torch.randint(4, x.shape, generator=generator)
    return torch.where(kind == 0, 0.0, torch.where(kind == 1, 1.0, x)).mul(255).round().div(255)


def radius(kind, eps, x, generator):
    if kind == "number":
        return eps
    shape = {"image": (len(x),), "pixel": x.shape[1:], "each": x.shape}[kind]
    return eps * torch.rand(shape, generator=generator)


def real_radius(eps, x):
    if not isinstance(eps, torch.Tensor):
        return torch.full(x.shape, float(eps), dtype=EXACT)
    eps = eps.to(EXACT)
    return (eps.view(-1, 1, 1, 1) if eps.dim() == 1 else eps).expand(x.shape)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    eps=st.sampled_from([0.0, 1e-9, 1e-4, 2 / 255, 8 / 255, 0.1, 0.3, 1.0]) | st.floats(0, 1),
    kind=st.sampled_from(["number", "image", "pixel", "each"]),
)
def test_real_ball_lies_between_point_and_bounds(seed, eps, kind):
    generator = torch.Generator().manual_seed(seed)
    x = images(seed)
    eps = radius(kind, eps, x, generator)
    ball = Ball(x, eps)
    r = real_radius(eps, x)
    lowest = (x.to(EXACT) - r).clamp_min(0)
    highest = (x.to(EXACT) + r).clamp_max(1)
    assert (ball.lb.to(EXACT) <= lowest).all()
    assert (ball.ub.to(EXACT) >= highest).all()
    assert (lowest - ball.lb).max() <= 1e-6
    assert (ball.ub - highest).max() <= 1e-6

    (inside,) = ball.random_start(generator)
    corner = inside.sign()
    for e in (inside, corner, torch.ones_like(x), -torch.ones_like(x)):
        point = ball.point((e,)).to(EXACT)
        assert (point >= lowest).all()
        assert (point <= highest).all()
    reach = ball.point((torch.ones_like(x),)).to(EXACT)
    assert (highest - reach).max() <= 1e-6


def test_double_precision_ball_is_exact_too():
    x = images(1).double()
    ball = Ball(x, 0.1)
    assert ball.lb.dtype == torch.float64
    for sign in (-1.0, 1.0):
        distance = (ball.point((torch.full_like(x, sign),)) - x).abs().max()
        assert 0.1 - 1e-14 < distance <= 0.1


def test_eps_zero_is_the_image():
    x = images(2)
    ball = Ball(x, 0)
    point = ball.point(ball.random_start(torch.Generator().manual_seed(0)))
    for tensor in (point, ball.lb, ball.ub):
        assert torch.equal(tensor, x)


def test_gradient_is_never_stuck_at_the_border():
    x = images(3, n=50)
    ball = Ball(x, 0.1)
    for border in (-1.0, 1.0):
        e = torch.full_like(x, border, requires_grad=True)
        ball.point((e,)).sum().backward()
        assert e.grad is not None
        assert (e.grad > 0).all()


def test_other_pixel_range():
    x = torch.linspace(-1, 1, 12).view(1, 1, 3, 4)
    ball = Ball(x, 0.5, low=-1, high=1)
    assert ball.lb.min() == -1
    assert ball.ub.max() == 1


def test_random_start_follows_the_generator_and_covers_the_cube():
    ball = Ball(images(0, n=200), 0.1)
    first, again = (ball.random_start(torch.Generator().manual_seed(7))[0] for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == ball.shapes[0]
    assert first.min() >= -1
    assert first.max() <= 1
    assert first.min() < -0.99
    assert first.max() > 0.99
    assert abs(first.mean()) < 0.05


@pytest.mark.parametrize("kind", ["number", "image", "pixel", "each"])
@pytest.mark.parametrize("index", [torch.tensor([2, 0, 2]), torch.tensor([True, False, True])])
def test_select_is_the_ball_of_the_selected(kind, index):
    x = images(4)
    ball = Ball(x, radius(kind, 0.1, x, torch.Generator().manual_seed(1)))
    part = ball.select(index)
    e = ball.random_start(torch.Generator().manual_seed(2))
    assert len(part) == len(x[index])
    assert part.shapes[0] == x[index].shape
    assert torch.equal(part.point((e[0][index],)), ball.point(e)[index])
    assert torch.equal(part.lb, ball.lb[index])
    assert torch.equal(part.ub, ball.ub[index])
    assert torch.equal(part.x, x[index])
    assert torch.equal(part.eps_out.expand_as(part.x), ball.eps_out.expand_as(ball.x)[index])


def test_eps_as_people_write_it():
    x = images(5)
    assert torch.equal(Ball(x, Eps("8/255")).lb, Ball(x, 8 / 255).lb)


@pytest.mark.parametrize(
    ("eps", "says"),
    [
        (-0.1, "eps = -0.1"),
        (float("nan"), "eps = nan"),
        (float("inf"), "eps = inf"),
        (torch.ones(2), r"eps has shape \(2,\) for images \(3, 1, 4, 5\)"),
        (torch.ones(3, 1), "eps has shape"),
        (torch.ones(4, 3, 1, 4, 5), "eps has shape"),
    ],
)
def test_bad_eps_is_named(eps, says):
    with pytest.raises(UsageError, match=says):
        Ball(images(6), eps)


@pytest.mark.parametrize("pixel", [1.5, -0.1, float("nan")])
def test_image_outside_the_pixel_range_is_refused(pixel):
    x = images(7)
    x[0, 0, 0, 0] = pixel
    with pytest.raises(UsageError, match="needs x inside"):
        Ball(x, 0.1)
