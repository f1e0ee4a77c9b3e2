"""A network in a table: one row per layer, and the whole in one line."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from maar.networks.checking import trace
from maar.networks.layers import Normalize, Residual
from maar.networks.maps import Dag


@dataclass(frozen=True)
class Row:
    """One layer: "3.body.0" is the first layer of the body of the Residual at index 3."""

    index: str
    layer: str
    shape: tuple[int, ...]
    parameters: int
    relus: int


def describe(net: nn.Sequential, shape: tuple[int, ...]) -> list[Row]:
    """One row per layer, in the order of computation, for one image of `shape`.

    A Residual comes after the layers inside it, and counts nothing of its own.
    """
    rows = []
    for step in trace(net, shape):
        own = not isinstance(step.layer, Residual | Dag)
        size = sum(p.numel() for p in step.layer.parameters()) if own else 0
        relus = math.prod(step.shape) if isinstance(step.layer, nn.ReLU) else 0
        rows.append(Row(step.index, spell_layer(step.layer), step.shape, size, relus))
    return rows


def one_line(net: nn.Sequential) -> str:
    """The affine layers in short: "conv 32 k5 s2 p2, conv 64 k4 s2 p1, fc 100, fc 10"."""
    words: list[str] = []
    for layer in net:
        if isinstance(layer, (nn.Conv2d, nn.Linear, nn.AvgPool2d)):
            words.append(spell_layer(layer))
        elif isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)) and words:
            words[-1] += " bn"
        elif isinstance(layer, Residual):
            shortcut = f" + {one_line(layer.shortcut)}" if len(layer.shortcut) else ""
            words.append(f"residual ({one_line(layer.body)}{shortcut})")
    return ", ".join(words)


def spell_layer(layer: nn.Module) -> str:
    """One layer in a few words."""
    if isinstance(layer, nn.Conv2d):
        extra = f" d{_one(layer.dilation)}" if layer.dilation != (1, 1) else ""
        extra += f" g{layer.groups}" if layer.groups != 1 else ""
        size, stride, pad = map(_one, (layer.kernel_size, layer.stride, layer.padding))
        return f"conv {layer.out_channels} k{size} s{stride} p{pad}{extra}"
    if isinstance(layer, nn.Linear):
        return f"fc {layer.out_features}"
    if isinstance(layer, nn.AvgPool2d):
        size, stride, pad = map(_one, (layer.kernel_size, layer.stride, layer.padding))
        return f"avgpool k{size} s{stride} p{pad}"
    if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
        return "batch norm"
    if isinstance(layer, Residual):
        return "residual: body + shortcut" if len(layer.shortcut) else "residual: body + input"
    if isinstance(layer, Normalize):
        return "normalize"
    if isinstance(layer, Dag):
        return f"{len(layer.layers)} layers wired together"
    return type(layer).__name__.lower()


def _one(size: object) -> str:
    """3 for (3, 3), 3x5 for (3, 5)."""
    if not isinstance(size, tuple):
        return str(size)
    return str(size[0]) if len(set(size)) == 1 else "x".join(map(str, size))
