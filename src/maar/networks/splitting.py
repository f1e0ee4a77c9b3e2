"""Cut a network at a layer, as layerwise training does."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from maar.core.errors import UsageError


def relu_indices(net: nn.Sequential) -> list[int]:
    """Indices of the ReLUs of the network itself; those inside a Residual cannot be cut at."""
    return [index for index, layer in enumerate(net) if isinstance(layer, nn.ReLU)]


def split(net: nn.Sequential, index: int) -> tuple[nn.Sequential, nn.Sequential]:
    """(layers before `index`, the rest); `split(net, relu_indices(net)[0] + 1)` cuts after a ReLU.

    Both parts share their modules with `net` and keep their names, so that training a part trains
    the network.
    """
    if not 0 <= index <= len(net):
        raise UsageError(f"split index {index} is outside 0..{len(net)}")
    items = list(net.named_children())
    return _part(items[:index], net.training), _part(items[index:], net.training)


def _part(items: list[tuple[str, nn.Module]], training: bool) -> nn.Sequential:
    part = nn.Sequential(OrderedDict(items))
    part.training = training  # this flag only: .train() would reach into the shared modules
    return part
