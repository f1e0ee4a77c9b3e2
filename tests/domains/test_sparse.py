"""Matrices kept sparse give the bounds that dense ones do."""

import pytest
import torch
from torch import nn

from maar.domains.bound import Corners
from maar.domains.crown import Crown
from maar.domains.forward import Forward
from maar.domains.graph import by_sparse, trace
from maar.domains.interval import Interval


def network():
    torch.manual_seed(0)
    layers = [nn.Linear(3, 50), nn.ReLU(), nn.Linear(50, 60), nn.ReLU(), nn.Linear(60, 2)]
    with torch.no_grad():
        layers[2].weight.mul_(torch.rand(60, 50) < 0.03)
    return nn.Sequential(*layers).double().requires_grad_(False)


@pytest.mark.parametrize("bound", [Interval(rounding=True), Crown(rounding=True)])
def test_the_same_bounds(bound):
    dense, sparse = trace(network(), (3,)), trace(network(), (3,))
    sparse.keep_sparse()
    assert sparse.sparse(2)
    assert not sparse.sparse(0)
    ub = torch.rand(4, 3, dtype=torch.float64)
    for left, right in zip(
        vars(bound(dense, Corners(-ub, ub))).values(),
        vars(bound(sparse, Corners(-ub, ub))).values(),
        strict=True,
    ):
        torch.testing.assert_close(left, right)
    band, _ = Forward(dense)(-ub, ub)
    assert band.a.shape == (4, 2)


def test_products():
    weight = torch.randn(5, 7).double() * (torch.rand(5, 7) < 0.3)
    x = torch.randn(2, 3, 7).double()
    torch.testing.assert_close(by_sparse(weight.to_sparse().coalesce(), x), x @ weight.T)
