"""Losses by hand, and what counts as broken."""

import math

import pytest
import torch

from maar.attacks.losses import LOSSES, cross_entropy, dlr, margin
from maar.core.errors import UsageError

Z = torch.tensor([[1.0, 4.0, 2.0, 0.0], [3.0, 1.0, 0.0, -1.0]])
Y = torch.tensor([1, 2])


def test_margin():
    assert margin(Z, Y).tolist() == [-2.0, 3.0]
    assert margin(Z, Y, torch.tensor([0, 1])).tolist() == [-3.0, 1.0]


def test_cross_entropy():
    p = Z.softmax(1)
    assert cross_entropy(Z, Y).tolist() == pytest.approx(
        [-math.log(p[0, 1]), -math.log(p[1, 2])], rel=1e-5
    )
    assert cross_entropy(Z, Y, torch.tensor([0, 1])).tolist() == pytest.approx(
        [math.log(p[0, 0]), math.log(p[1, 1])], rel=1e-5
    )


def test_dlr():
    """Croce & Hein 2020, eqs. 6 and 7."""
    assert dlr(Z, Y).tolist() == pytest.approx([-2 / (4 - 1), 3 / (3 - 0)])
    target = torch.tensor([0, 1])
    assert dlr(Z, Y, target).tolist() == pytest.approx([-3 / (4 - 0.5), 1 / (3 + 0.5)])
    assert torch.allclose(dlr(Z, Y), dlr(5 * Z - 7, Y))


def test_dlr_needs_classes():
    with pytest.raises(UsageError, match="at least 3 classes, the network has 2"):
        dlr(Z[:, :2], torch.tensor([0, 1]))


def test_a_tie_or_nan_breaks_nothing():
    tie = torch.tensor([[2.0, 2.0]])
    for y in (0, 1):
        assert not margin(tie, torch.tensor([y])) > 0
    assert not margin(torch.full((1, 3), math.nan), torch.tensor([1])) > 0


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_losses_grow_as_y_falls(name):
    z = Z[:1].clone().requires_grad_()
    LOSSES[name](z, Y[:1], None).sum().backward()
    assert z.grad is not None
    assert z.grad[0, Y[0]] < 0
