"""A small residual network: two blocks, the first with a strided shortcut."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from maar.networks.architectures.convnet import flat_features
from maar.networks.layers import Normalize, Residual


def resnet_small(
    shape: tuple[int, ...], classes: int, mean: Sequence[float], std: Sequence[float]
) -> nn.Sequential:
    """Two residual blocks (ResNet-2B of VNN-COMP 2021)"""
    layers = [
        Normalize(mean, std),
        nn.Conv2d(shape[0], 8, 3, 2, 1),
        nn.ReLU(),
        _block(8, 16, stride=2),
        nn.ReLU(),
        _block(16, 16, stride=1),
        nn.ReLU(),
        nn.Flatten(),
    ]
    features = flat_features(layers, shape)
    return nn.Sequential(*layers, nn.Linear(features, 100), nn.ReLU(), nn.Linear(100, classes))


def _block(channels: int, out: int, stride: int) -> Residual:
    body = nn.Sequential(
        nn.Conv2d(channels, out, 3, stride, 1), nn.ReLU(), nn.Conv2d(out, out, 3, 1, 1)
    )
    # The identity only fits where the block changes neither size nor channels.
    same = stride == 1 and channels == out
    return Residual(body, None if same else nn.Sequential(nn.Conv2d(channels, out, 1, stride)))
