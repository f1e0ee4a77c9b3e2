"""CROWN: a worked example, its options, gradients."""

import pytest
import torch
from torch import nn

from maar.domains.bound import Corners, margins
from maar.domains.crown import Crown
from maar.domains.graph import compile_network
from maar.domains.interval import Interval
from maar.domains.relax import lower_slope, upper_line

either_form = pytest.mark.parametrize("compiled", [False, True], ids=["live", "compiled"])


def given(net, compiled, shape=(2,)):
    return compile_network(net, shape) if compiled else net


def test_the_lines():
    """[-1,3]: s = t = 3/4, slope 1 below. [-3,1]: s = 1/4, t = 3/4, slope 0. Stable ones exact."""
    lb = torch.tensor([-1.0, -3.0, 2.0, -2.0, 0.0, -1.0], dtype=torch.float64)
    ub = torch.tensor([3.0, 1.0, 5.0, -1.0, 0.0, 0.0], dtype=torch.float64)
    slope, intercept = upper_line(lb, ub)
    torch.testing.assert_close(slope[:4], torch.tensor([0.75, 0.25, 1, 0]).double())
    torch.testing.assert_close(intercept, torch.tensor([0.75, 0.75, 0, 0, 0, 0]).double())
    assert lower_slope(lb, ub)[:4].tolist() == [1, 0, 1, 0]
    # at 0 every slope is exact; on [-1,0] only 0 is
    assert (slope[5], lower_slope(lb, ub)[5]) == (0, 0)


@either_form
@pytest.mark.parametrize("rounding", [False, True])
def test_the_worked_example(worked, compiled, rounding):
    """With the lines s v + t = 3/4 v + 3/4 above and v below:

    z1 = h1 + h2 >= v1 + v2 = 2 x1 + 2                               >= 0
    z1           <= 3/4 (v1 + v2) + 3/2 = 3/2 x1 + 3                 <= 9/2
    z2 = h1 - h2 >= v1 - 3/4 v2 - 3/4 = 1/4 x1 + 7/4 x2 - 1/2        >= -5/2
    z2           <= 3/4 v1 + 3/4 - v2 = -1/4 x1 + 7/4 x2 + 1/2       <= 5/2
    """
    net, box = worked
    found = Crown(rounding=rounding)(given(net, compiled), box)
    expected = torch.tensor([[0, -5 / 2]]).double(), torch.tensor([[9 / 2, 5 / 2]]).double()
    torch.testing.assert_close((found.lb, found.ub), expected, rtol=0, atol=1e-12)


def two_hidden_layers():
    """v = x + 1 and w = relu(v) - x, so truly w in [0, 1] ... in one dimension, by hand.

    x in [-2,2]: v in [-1,3], s = t = 3/4, slope 1. For the second ReLU's input
    w = h - 1/2 x - 1 (h = relu(v)):
        w >= v - x/2 - 1           = x/2                 >= -1
        w <= 3/4 v + 3/4 - x/2 - 1 = x/4 + 1/2           <= 1
    By intervals w is in [0,3] - [-1,1] - 1 = [-2, 3].
    """
    first, second, third = nn.Linear(1, 3), nn.Linear(3, 1), nn.Linear(1, 1)
    with torch.no_grad():
        # x and -x pass as relu(x + 9) and relu(-x + 9), which are stable
        first.weight.copy_(torch.tensor([[1.0], [1.0], [-1.0]]))
        first.bias.copy_(torch.tensor([1.0, 9.0, 9.0]))
        second.weight.copy_(torch.tensor([[1.0, -0.25, 0.25]]))
        second.bias.fill_(-1)
        third.weight.fill_(-1)
        third.bias.zero_()
    net = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third).double()
    two = torch.full((1, 1), 2.0, dtype=torch.float64)
    return net, Corners(-two, two)


@either_form
def test_intermediate_bounds_by_crown_and_by_intervals(compiled):
    """-relu(w) >= -(s w + t): with w in [-1,1], s = t = 1/2 and w <= x/4 + 1/2:

        -relu(w) >= -1/2 (x/4 + 1/2) - 1/2 = -x/8 - 3/4 >= -1

    By CROWN-IBP w is in [-2,3], s = 3/5 and t = 6/5:

        -relu(w) >= -3/5 (x/4 + 1/2) - 6/5 >= -9/5, while intervals say -3.
    """
    net, box = two_hidden_layers()
    by_crown = Crown()(given(net, compiled, (1,)), box)
    (lb, ub) = by_crown.pre[1]
    assert (lb.item(), ub.item()) == (pytest.approx(-1), pytest.approx(1))
    assert by_crown.lb.item() == pytest.approx(-1)
    by_interval = Crown("interval")(given(net, compiled, (1,)), box)
    (lb, ub) = by_interval.pre[1]
    assert (lb.item(), ub.item()) == (pytest.approx(-2), pytest.approx(3))
    assert by_interval.lb.item() == pytest.approx(-9 / 5)
    assert Interval()(net, box).lb.item() == pytest.approx(-3)


@either_form
def test_without_upper_bounds(worked, compiled):
    net, box = worked
    both, lower = Crown(), Crown(upper=False)
    torch.testing.assert_close(
        lower(given(net, compiled), box).lb, both(given(net, compiled), box).lb
    )
    assert lower(given(net, compiled), box).ub.tolist() == [[6, 3]]  # the interval's


@pytest.mark.parametrize("intermediate", ["crown", "interval"])
def test_gradients(residual_net, close_to_differences, intermediate):
    net, box = residual_net
    C = margins(torch.tensor([0, 2]), 3, torch.float64)
    close_to_differences(lambda: Crown(intermediate)(net, box, C).lb.sum(), list(net.parameters()))


def test_gradients_are_finite_where_everything_is_stable_or_a_point(residual_net):
    net, box = residual_net
    for corner in (Corners(box.lb, box.lb), Corners(box.lb - 50, box.ub + 50)):
        for bound in (Crown(), Crown("interval"), Interval()):
            net.zero_grad()
            found = bound(net, corner)
            (found.lb - found.ub).sum().backward()
            assert all(
                bool(p.grad.isfinite().all()) for p in net.parameters() if p.grad is not None
            )


def test_a_small_budget_takes_small_pieces(residual_net, monkeypatch):
    from maar.domains import crown

    net, box = residual_net
    lengths = []
    lower = crown.lower

    def noted(boxes, value, rows, *more):
        lengths.append(len(rows))
        return lower(boxes, value, rows, *more)

    monkeypatch.setattr(crown, "lower", noted)
    Crown()(net, box)
    assert max(lengths) > 3
    lengths.clear()
    # 4 times the widest value (36 neurons of 8 bytes) is what a row may need
    Crown(budget=3 * 4 * 36 * 8)(net, box)
    assert max(lengths) == 3
