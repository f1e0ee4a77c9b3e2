"""Balls with a radius and a range for each place, against exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maar.core.errors import UsageError
from maar.regions.ball import Ball
from maar.regions.perturbation import Perturbation, perturbation

SIZES = st.sampled_from([0.0, 1e-46, 1e-40, 1e-9, 0.1, 1 / 3, 1.0, 7.3, 1e6, 3e20])
PLACES = st.sampled_from([0.0, -0.0, 1e-42, 1e-8, 0.3, 1.0, 1000.1, 1e7, 1e25])


def exact(number) -> Fraction:
    return Fraction(float(number))


def faults(ball: Ball, x, each, low, high, dtype) -> list[str]:
    """What is wrong with the outer or the inner box of a ball, in exact arithmetic."""
    wrong = []
    inner = [end[0].tolist() for end in ball.ends]
    points = [ball.point((torch.full_like(ball.x, e),))[0].tolist() for e in (-1, 0.3, 1)]
    for i, (centre, size) in enumerate(zip(x[0].tolist(), each.tolist(), strict=True)):
        least, most = exact(centre) - exact(size), exact(centre) + exact(size)
        least = least if low[i] == -np.inf else max(least, exact(low[i]))
        most = most if high[i] == np.inf else min(most, exact(high[i]))
        lb, ub = ball.lb[0, i].item(), ball.ub[0, i].item()
        if (np.isfinite(lb) and exact(lb) > least) or (np.isfinite(ub) and exact(ub) < most):
            wrong.append(f"outer box at {i} does not hold the region")
        for end in (inner[0][i], inner[1][i], *(point[i] for point in points)):
            if not least <= exact(end) <= most:
                wrong.append(f"inner box or point at {i} leaves the region")
    return wrong


@st.composite
def cases(draw):
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    count = draw(st.integers(1, 5))
    centres = [draw(st.sampled_from([-1.0, 1.0])) * draw(PLACES) for _ in range(count)]
    x = torch.tensor([centres], dtype=torch.float32).to(dtype)
    each = np.array([draw(SIZES) for _ in range(count)])
    wide = x[0].double().numpy()
    room = [draw(st.sampled_from([0.0, 1e-45, 1e-3, 5.0, np.inf])) for _ in range(2 * count)]
    low, high = wide - np.array(room[:count]), wide + np.array(room[count:])
    return x, each, low, high, dtype


@settings(max_examples=300, deadline=None)
@given(cases())
def test_the_region_is_enclosed_and_its_points_are_inside(case):
    x, each, low, high, dtype = case
    ball = Perturbation(each, low, high).ball(x)
    assert not faults(ball, x, each, low, high, dtype)


@pytest.mark.parametrize("bug", ["eps not outward", "range not outward", "eps not inward"])
def test_planted_bugs_are_seen(bug):
    generator = np.random.default_rng(0)
    seen = 0
    for _ in range(200):
        x = torch.from_numpy(generator.uniform(-9, 9, (1, 4))).float()
        each = generator.uniform(0, 3, 4)
        low, high = (x[0].double().numpy() + side * generator.uniform(0, 2, 4) for side in (-1, 1))
        ball = Perturbation(each, low, high).ball(x)
        near = torch.from_numpy(each)[None].float()
        ends = torch.from_numpy(low)[None].float(), torch.from_numpy(high)[None].float()
        if bug == "eps not outward":
            ball.lb = torch.maximum(x - near, ball.lb)
        elif bug == "range not outward":
            ball.lb = torch.maximum(ball.lb, ends[0])
        else:
            ball._inside.lb = torch.maximum(x - near, ends[0])
        seen += bool(faults(ball, x, each, low, high, torch.float32))
    assert seen > 10


def test_selected_rows_are_the_same_balls():
    each, x = np.array([0.1, 0.0, 2.0]), torch.randn(5, 3)
    ball = Perturbation(each, np.full(3, -np.inf), np.full(3, np.inf)).ball(x)
    part = ball.select(torch.tensor([3, 1]))
    assert torch.equal(part.lb, ball.lb[[3, 1]])
    assert torch.equal(part.eps_out, ball.eps_out[[3, 1]])
    assert torch.equal(part.ends[1], ball.ends[1][[3, 1]])


def test_fault_knows_the_region_exactly():
    moves = Perturbation(np.array([0.5, 0.0]), np.array([-1.0, -9.0]), np.array([1.0, 9.0]))
    x = np.array([0.75, 3.0], np.float32)
    inside = [[0.75, 3.0], [1.0, 3.0], [0.2500001, 3.0]]
    outside = [[1.01, 3.0], [0.2, 3.0], [0.75, np.nextafter(np.float32(3), np.float32(4))]]
    assert [moves.fault(x, np.array(point, np.float32)) for point in inside] == ["", "", ""]
    assert all(moves.fault(x, np.array(point, np.float32)) for point in outside)
    assert moves.fault(x, np.array([np.nan, 3.0], np.float32))


def test_the_usual_question_has_no_perturbation():
    assert perturbation("2/255", (3, 8, 8)) == (2 / 255, None)


def test_spelling():
    size, moves = perturbation(["1/255", "2/255", 0], (3, 2, 2))
    assert moves is not None
    assert size == 2 / 255
    assert moves.each[:, 1, 1].tolist() == [1 / 255, 2 / 255, 0]
    _, moves = perturbation(0.5, (3, 2, 2), mask=[[True, False], [False, False]])
    assert moves is not None
    assert moves.each.sum() == 1.5
    _, moves = perturbation(torch.tensor([5.0, 0.0]), (2,), span=None)
    assert moves is not None
    assert (moves.each.tolist(), moves.low.tolist()) == ([5, 0], [-np.inf] * 2)
    assert moves.at(0.25).each.tolist() == [0.25, 0]
    assert moves.digest != moves.at(0.25).digest


@pytest.mark.parametrize(
    ("eps", "options", "said"),
    [
        (5, {}, "larger than the whole pixel range"),
        ([0.1, 5], {}, "larger than the whole pixel range"),
        ([0.1, 0.2], {}, r"eps has shape \(2,\) for inputs \(3, 2, 2\) .*one per channel"),
        (0.1, {"mask": [0.5]}, "mask holds other values"),
        (0.1, {"mask": [[1, 0, 1]]}, r"mask has shape \(1, 3\)"),
        (np.array([-1.0]), {}, "values that are no radius"),
        (0.1, {"span": (1.0, 0.0)}, "least value above the greatest"),
    ],
)
def test_errors(eps, options, said):
    with pytest.raises(UsageError, match=said):
        perturbation(eps, (3, 2, 2), **options)


def test_a_radius_for_each_place_cannot_be_scaled():
    _, moves = perturbation([1.0, 2.0], (2,), span=None)
    assert moves is not None
    with pytest.raises(UsageError, match="differs from place to place"):
        moves.at(0.5)
