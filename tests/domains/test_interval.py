"""Interval bounds: a worked example, exactness, gradients."""

import pytest
import torch
from torch import nn

from maar.domains.bound import Corners, margins
from maar.domains.interval import Interval


def test_the_worked_example(worked):
    """v in [-1,3]^2, h in [0,3]^2, so h1 + h2 in [0,6] and h1 - h2 in [-3,3]."""
    net, box = worked
    found = Interval()(net, box)
    ((lb, ub),) = found.pre
    assert (lb.tolist(), ub.tolist()) == ([[-1, -1]], [[3, 3]])
    assert (found.lb.tolist(), found.ub.tolist()) == ([[0, -3]], [[6, 3]])


def test_a_specification_is_multiplied_into_the_last_layer(worked):
    """z1 - z2 = 2 h2 is in [0,6]; from the outputs' own intervals it would be in [-3,9]."""
    net, box = worked
    found = Interval()(net, box, margins(torch.tensor([0]), 2, torch.float64))
    assert (found.lb.tolist(), found.ub.tolist()) == ([[0]], [[6]])


def test_what_is_known_is_used(worked):
    net, box = worked
    known = torch.tensor([[0.0, -9.0]]), torch.tensor([[1.0, 9.0]])
    found = Interval()(net, box, known=[known])
    ((lb, ub),) = found.pre
    assert (lb.tolist(), ub.tolist()) == ([[0, -1]], [[1, 3]])
    assert found.ub.tolist() == [[4, 1]]


def test_one_matrix_is_bounded_exactly():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3)).double()
    lb = torch.rand(5, 4, dtype=torch.float64)
    ub = lb + torch.rand(5, 4, dtype=torch.float64)
    weight, bias = net[0].weight, net[0].bias
    found = Interval()(net, Corners(lb, ub))
    torch.testing.assert_close(
        found.lb, lb @ weight.clamp(min=0).T + ub @ weight.clamp(max=0).T + bias
    )
    torch.testing.assert_close(
        found.ub, ub @ weight.clamp(min=0).T + lb @ weight.clamp(max=0).T + bias
    )


@pytest.mark.parametrize("rounding", [False, True])
def test_gradients(residual_net, close_to_differences, rounding):
    net, box = residual_net
    C = margins(torch.tensor([0, 2]), 3, torch.float64)

    def loss():
        return Interval(rounding)(net, box, C).lb.sum()

    close_to_differences(loss, list(net.parameters()))


def test_gradients_reach_the_box(residual_net, close_to_differences):
    net, box = residual_net
    lb, ub = box.lb.clone().requires_grad_(), box.ub.clone().requires_grad_()
    close_to_differences(lambda: Interval()(net, Corners(lb, ub)).ub.sum(), [lb, ub])
