"""`maar.bounds`, `maar.attack` and `maar.convert` on tensors."""

import pytest
import torch
from torch import nn

import maar
from maar.core.errors import UsageError


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 4))


X = torch.rand(5, 1, 3, 3, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("rounding", [False, True])
@pytest.mark.parametrize("method", ["interval", "zonotope", "crown_ibp", "crown", "alpha_crown"])
def test_bounds_enclose_the_outputs_of_the_ball(method, rounding):
    net = network()
    found = maar.bounds(net, X, 0.05, method=method, rounding=rounding)
    for seed in range(20):
        noise = torch.rand(X.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        z = net((X + 0.05 * noise).clamp(0, 1))
        assert bool((found.lb <= z + 1e-5).all())
        assert bool((z - 1e-5 <= found.ub).all())


def test_rows_of_c():
    net, C = network(), torch.tensor([[1.0, -1.0, 0.0, 0.0]])
    found = maar.bounds(net, X, 0.0, C=C, method="crown")
    z = net(X)
    torch.testing.assert_close(found.lb[:, 0], z[:, 0] - z[:, 1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", ["interval", "zonotope", "crown_ibp", "crown"])
def test_bounds_are_differentiable(method):
    net = network()
    maar.bounds(net, X, 0.05, method=method).lb.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    assert any(bool(parameter.grad.any()) for parameter in net.parameters())


def test_an_unknown_method_is_named():
    with pytest.raises(maar.UsageError, match=r"crwon.*did you mean 'crown'"):
        maar.bounds(network(), X, 0.1, method="crwon")


def test_convert_keeps_the_parameters_and_opens_containers():
    net = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(9, 4), nn.ReLU(inplace=True)))
    seen = maar.convert(net, X)
    assert [type(layer).__name__ for layer in seen] == ["Flatten", "Linear", "ReLU"]
    assert seen[1].weight is net[1][0].weight
    assert not seen[2].inplace


def test_convert_names_what_is_not_supported():
    with pytest.raises(maar.UsageError, match="layer 1 is a GELU"):
        maar.convert(nn.Sequential(nn.Flatten(), nn.GELU()))


@pytest.mark.parametrize("method", ["interval", "crown"])
def test_a_proof_is_not_about_rounded_weights_or_rows(method):
    net = nn.Sequential(nn.Linear(2, 2)).requires_grad_(False)
    x, C = torch.full((1, 2), 0.5), torch.tensor([[1 + 1e-9, -1.0]], dtype=torch.float64)
    with pytest.raises(UsageError, match=r"C is of type torch.float64, x of type torch.float32"):
        maar.bounds(net, x, 0.1, method=method, C=C, rounding=True)
    net.double()[0].weight.add_(1e-12)
    with pytest.raises(UsageError, match=r"0.weight is of type torch.float64"):
        maar.bounds(net, x, 0.1, method=method, rounding=True)
    maar.bounds(net, x.double(), 0.1, method=method, C=C, rounding=True)
    maar.bounds(net, x, 0.1, method=method)
