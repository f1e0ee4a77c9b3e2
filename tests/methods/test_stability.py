"""The ReLU-stability term against what autograd makes of its formula."""

import pytest
import torch

from maar.methods.stability import instability


def formula(lb, ub):
    return ((-lb).clamp_min(0) * ub.clamp_min(0)).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_value_and_gradients_are_those_of_the_formula(dtype, memory_format):
    chance = torch.Generator().manual_seed(0)
    centre = torch.randn(3, 4, 5, 5, generator=chance, dtype=dtype)
    radius = torch.rand(3, 4, 5, 5, generator=chance, dtype=dtype)
    lb, ub = (v.contiguous(memory_format=memory_format) for v in (centre - radius, centre + radius))
    kinds = ((lb < 0) & (ub > 0), lb > 0, ub < 0)
    assert all(kind.any() for kind in kinds)
    found, wanted = [], []
    for function, gradients in ((instability, found), (formula, wanted)):
        given = [v.clone().requires_grad_() for v in (lb, ub)]
        value = function(*given)
        gradients += [value.detach(), *torch.autograd.grad(3 * value, given)]
    torch.testing.assert_close(found, wanted)


def test_by_finite_differences():
    lb = torch.tensor([-1.0, -0.3, 0.5, -2.0], dtype=torch.float64, requires_grad=True)
    ub = torch.tensor([0.7, 1.3, 0.9, -0.4], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(instability, (lb, ub))


def test_a_bound_of_zero_is_stable():
    lb = torch.tensor([0.0, -1.0], requires_grad=True)
    ub = torch.tensor([1.0, 0.0], requires_grad=True)
    for slope in torch.autograd.grad(instability(lb, ub), (lb, ub)):
        assert not slope.any()
