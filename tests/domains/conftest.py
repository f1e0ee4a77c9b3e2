"""A small worked example, and finite differences; the modules of tests/soundness on the path."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from maar.domains.bound import Corners

# pytest's importlib mode adds no folder by itself.
sys.path.insert(0, str(Path(__file__).parents[1] / "soundness"))


@pytest.fixture
def worked():
    """x in [-1,1]^2; v = (x1 + x2 + 1, x1 - x2 + 1); h = relu(v); z = (h1 + h2, h1 - h2).

    Both v lie in [-1, 3], so each ReLU is unstable: the line above it has slope s = 3/4 and
    intercept t = 3/4, and CROWN's line below has slope 1, since 3 >= 1. Truly, z1 is in [0, 4]
    and z2 in [-2, 2].
    """
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
        net[0].bias.fill_(1)
        net[2].weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
        net[2].bias.zero_()
    one = torch.ones(1, 2, dtype=torch.float64)
    return net, Corners(-one, one)


@pytest.fixture
def residual_net():
    """Every kind of layer once, in float64, and a box on which some ReLUs are unstable."""
    from maar.networks.layers import Normalize, Residual

    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 3, 3, 1, 1), nn.ReLU(), nn.Conv2d(3, 3, 3, 1, 1))
    net = nn.Sequential(
        Normalize([0.4], [0.3]),
        nn.Conv2d(1, 3, 3, 2, 1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        Residual(body),
        nn.ReLU(),
        nn.AvgPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(12, 5),
        nn.ReLU(),
        nn.Linear(5, 3),
    )
    net = net.double().eval()
    with torch.no_grad():
        net[2].running_mean.normal_(0, 0.1)
        net[2].running_var.uniform_(0.5, 1.5)
    x = torch.rand(2, 1, 6, 6, dtype=torch.float64)
    return net, Corners(x - 0.1, x + 0.1)


@pytest.fixture
def close_to_differences():
    """`check(loss, tensors)`: autograd's gradient of loss() against central differences."""

    def check(loss, tensors, places=3, step=1e-6):
        generator = torch.Generator().manual_seed(0)
        gradients = torch.autograd.grad(loss(), tensors)
        assert any(bool((gradient != 0).any()) for gradient in gradients)
        for tensor, gradient in zip(tensors, gradients, strict=True):
            flat = tensor.detach().view(-1)
            for place in torch.randperm(len(flat), generator=generator)[:places].tolist():
                old = flat[place].item()
                values = []
                for shift in (step, -step):
                    flat[place] = old + shift
                    values.append(loss().item())
                flat[place] = old
                slope = (values[0] - values[1]) / (2 * step)
                assert gradient.flatten()[place].item() == pytest.approx(slope, rel=1e-4, abs=1e-6)

    return check
