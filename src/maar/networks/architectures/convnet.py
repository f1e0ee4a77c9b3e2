"""Convolutions, then fully connected layers: the shape that all but two of the networks share."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from maar.networks.checking import trace
from maar.networks.layers import Normalize

Conv = tuple[int, int, int, int]  # channels, kernel, stride, padding


def convnet(
    shape: tuple[int, ...],
    classes: int,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    convs: Sequence[Conv],
    hidden: Sequence[int],
    batch_norm: bool = False,
) -> nn.Sequential:
    """Normalize, `convs`, Flatten, `hidden` fully connected layers, and the class scores."""
    layers: list[nn.Module] = [Normalize(mean, std)]
    channels = shape[0]
    for out, kernel, stride, padding in convs:
        layers.append(nn.Conv2d(channels, out, kernel, stride, padding))
        layers += [nn.BatchNorm2d(out)] if batch_norm else []
        layers.append(nn.ReLU())
        channels = out
    layers.append(nn.Flatten())
    features = flat_features(layers, shape)
    for out in hidden:
        layers.append(nn.Linear(features, out))
        layers += [nn.BatchNorm1d(out)] if batch_norm else []
        layers.append(nn.ReLU())
        features = out
    layers.append(nn.Linear(features, classes))
    return nn.Sequential(*layers)


def flat_features(layers: Sequence[nn.Module], shape: tuple[int, ...]) -> int:
    """How many numbers come out of `layers` (which end in Flatten) for one image of `shape`."""
    return trace(nn.Sequential(*layers), shape)[-1].shape[0]
