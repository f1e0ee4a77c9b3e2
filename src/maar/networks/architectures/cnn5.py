"""CNN5: the five-layer network of the certified-training libraries, in two widths."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from maar.networks.architectures.convnet import convnet


def cnn5(
    shape: tuple[int, ...], classes: int, mean: Sequence[float], std: Sequence[float]
) -> nn.Sequential:
    """CNN5 (TAPS, CTBench: cnn_5layer, width 16)"""
    convs = [(16, 3, 1, 1), (16, 4, 2, 1), (32, 4, 2, 1)]
    return convnet(shape, classes, mean, std, convs=convs, hidden=[512])


def cnn5_64_bn(
    shape: tuple[int, ...], classes: int, mean: Sequence[float], std: Sequence[float]
) -> nn.Sequential:
    """CNN5 of width 64 with BatchNorm (CTRAIN)"""
    convs = [(64, 3, 1, 1), (64, 4, 2, 1), (128, 4, 2, 1)]
    return convnet(shape, classes, mean, std, convs=convs, hidden=[512], batch_norm=True)
