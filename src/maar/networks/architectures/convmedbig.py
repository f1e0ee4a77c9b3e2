"""COLT's larger network, in the two readings of its second kernel.

The name is COLT's: `convmedbig_W1_W2_W3_H` has 16 W1, 16 W2 and 32 W3 channels and H hidden units.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from maar.networks.architectures.convnet import convnet


def convmedbig_2_2_4_250(
    shape: tuple[int, ...], classes: int, mean: Sequence[float], std: Sequence[float]
) -> nn.Sequential:
    """The paper's CIFAR-10 network (COLT, eps 2/255; kernels 3, 4, 4)"""
    # The default of the two: the public COLT network, from which the published numbers come, has
    # kernels 3, 4, 4, and with stride 2 and padding 1 a kernel of 4 is what halves an even size.
    convs = [(32, 3, 1, 1), (32, 4, 2, 1), (128, 4, 2, 1)]
    return convnet(shape, classes, mean, std, convs=convs, hidden=[250])


def convmedbig_2_2_4_250_bn(
    shape: tuple[int, ...], classes: int, mean: Sequence[float], std: Sequence[float]
) -> nn.Sequential:
    """The paper's CIFAR-10 network with BatchNorm, for the IBP family"""
    convs = [(32, 3, 1, 1), (32, 4, 2, 1), (128, 4, 2, 1)]
    return convnet(shape, classes, mean, std, convs=convs, hidden=[250], batch_norm=True)


def convmedbig_2_2_4_250_k334(
    shape: tuple[int, ...], classes: int, mean: Sequence[float], std: Sequence[float]
) -> nn.Sequential:
    """The paper's CIFAR-10 network as its appendix B.1 words it (kernels 3, 3, 4)"""
    convs = [(32, 3, 1, 1), (32, 3, 2, 1), (128, 4, 2, 1)]
    return convnet(shape, classes, mean, std, convs=convs, hidden=[250])
