"""COLT's medium networks: two convolutions and one hidden layer.

The names are COLT's: `convmed_W1_W2_H` has 16 W1 and 32 W2 channels and H hidden units.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from maar.networks.architectures.convnet import convnet


def convmed_2_2_100(
    shape: tuple[int, ...], classes: int, mean: Sequence[float], std: Sequence[float]
) -> nn.Sequential:
    """The paper's MNIST network (COLT, eps 0.1)"""
    convs = [(32, 5, 2, 2), (64, 4, 2, 1)]
    return convnet(shape, classes, mean, std, convs=convs, hidden=[100])


def convmed_2_2_100_bn(
    shape: tuple[int, ...], classes: int, mean: Sequence[float], std: Sequence[float]
) -> nn.Sequential:
    """The paper's MNIST network with BatchNorm, for the IBP family"""
    convs = [(32, 5, 2, 2), (64, 4, 2, 1)]
    return convnet(shape, classes, mean, std, convs=convs, hidden=[100], batch_norm=True)


def convmed_2_4_250(
    shape: tuple[int, ...], classes: int, mean: Sequence[float], std: Sequence[float]
) -> nn.Sequential:
    """COLT's CIFAR-10 network for eps 8/255"""
    convs = [(32, 5, 2, 2), (128, 4, 2, 1)]
    return convnet(shape, classes, mean, std, convs=convs, hidden=[250])
