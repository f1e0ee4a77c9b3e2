"""A fully connected network: small, fast, and free of anything a convolution could hide."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from maar.networks.architectures.convnet import convnet


def mlp(
    shape: tuple[int, ...], classes: int, mean: Sequence[float], std: Sequence[float]
) -> nn.Sequential:
    """Two hidden layers of 256 (VNN-COMP's mnist_fc 256x2)"""
    return convnet(shape, classes, mean, std, convs=[], hidden=[256, 256])
