"""Random networks for property tests: every supported layer, its options, nested residual blocks.

`random_net(data, shape)` draws one through hypothesis, so that a failure shrinks to a small one.
"""

import math

import pytest
import torch
from hypothesis import strategies as st
from torch import nn

from maar.networks.checking import trace
from maar.networks.layers import Normalize, Residual


def randomise(net):
    """Weights and statistics of ordinary size: fresh BatchNorms would hide a wrong folding."""
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.2, 3)
                if layer.affine:
                    layer.weight.normal_()
                    layer.bias.normal_()
    return net


def _conv(data, shape):
    channels, height, width = shape
    groups = data.draw(st.sampled_from([g for g in (1, 2, 3) if channels % g == 0]))
    kernel = data.draw(st.sampled_from([(1, 1), (3, 3), (2, 3)]))
    stride = (data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2)))
    padding = (data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2)))
    dilation = data.draw(st.integers(1, 2))
    fits = [
        size + 2 * p >= dilation * (k - 1) + 1
        for size, p, k in zip((height, width), padding, kernel, strict=True)
    ]
    if not all(fits):
        kernel, dilation = (1, 1), 1
    out = groups * data.draw(st.integers(1, 3))
    bias = data.draw(st.booleans())
    return nn.Conv2d(channels, out, kernel, stride, padding, dilation, groups, bias=bias)


def _residual(data, shape):
    conv = _conv(data, shape)
    out = conv.out_channels
    body = nn.Sequential(conv, nn.BatchNorm2d(out))
    if trace(body, shape)[-1].shape == shape:
        return Residual(body, None)
    # A shortcut of the same window but other weights gives the same shape.
    shortcut = nn.Conv2d(
        shape[0], out, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups
    )
    return Residual(body, nn.Sequential(nn.BatchNorm2d(shape[0]), shortcut))


def _image_layer(data, shape):
    kind = data.draw(st.sampled_from(["conv", "conv", "conv", "bn", "relu", "pool", "residual"]))
    if kind == "conv":
        return _conv(data, shape)
    if kind == "bn":
        return nn.BatchNorm2d(shape[0], affine=data.draw(st.booleans()))
    if kind == "pool" and min(shape[1:]) >= 2:
        padding = data.draw(st.integers(0, 1))
        return nn.AvgPool2d(2, data.draw(st.integers(1, 2)), padding)
    if kind == "residual":
        return _residual(data, shape)
    return nn.ReLU()


def _draw(data, shape, classes=3):
    layers = []
    if data.draw(st.booleans(), label="normalize"):
        std = [0.2 + 0.3 * k for k in range(shape[0])]
        zero = data.draw(st.booleans(), label="mean 0")
        layers.append(Normalize([0.0 if zero else 0.5 - 0.2 * k for k in range(shape[0])], std))
    now = shape
    for _ in range(data.draw(st.integers(0, 4), label="layers before Flatten")):
        layers.append(_image_layer(data, now))
        now = trace(nn.Sequential(layers[-1]), now)[-1].shape
    layers.append(nn.Flatten())
    features = math.prod(now)
    for _ in range(data.draw(st.integers(0, 2), label="hidden layers")):
        if data.draw(st.booleans(), label="bn before fc"):
            layers.append(nn.BatchNorm1d(features))
        layers.append(nn.Linear(features, 4, bias=data.draw(st.booleans())))
        features = 4
        if data.draw(st.booleans(), label="bn after fc"):
            layers.append(nn.BatchNorm1d(features))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(features, classes))


@pytest.fixture(scope="session")
def random_net():
    def draw(data, shape=(2, 6, 5), classes=3):
        seed = data.draw(st.integers(0, 2**16), label="seed")
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return randomise(_draw(data, shape, classes)).eval()

    return draw
