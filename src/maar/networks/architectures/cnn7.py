"""CNN7 with BatchNorm: the network behind the published IBP, SABR, TAPS and MTL-IBP numbers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from maar.networks.architectures.convnet import convnet


def cnn7(
    shape: tuple[int, ...], classes: int, mean: Sequence[float], std: Sequence[float]
) -> nn.Sequential:
    """CNN7 with BatchNorm (Shi et al., SABR, TAPS, MTL-IBP)"""
    convs = [(64, 3, 1, 1), (64, 3, 1, 1), (128, 3, 2, 1), (128, 3, 1, 1), (128, 3, 1, 1)]
    return convnet(shape, classes, mean, std, convs=convs, hidden=[512], batch_norm=True)
