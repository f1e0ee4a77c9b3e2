"""The evaluation network: Normalize and BatchNorm folded into the affine layers beside them.

Both are per-channel maps y = scale * x + shift. After a Conv2d or Linear such a map always folds
*back* into weight and bias. *Forward* into the next layer it folds exactly only where that layer
sees no padding: a padded convolution puts zeros around its own input, that is around the
*normalised* image, and zero there is the pixel value `mean`, which no bias can imitate at the
border. So a Normalize in front of a padded convolution stays (it is cheap, and every bound has a
rule for it) unless its mean is zero; so does a BatchNorm that has no affine layer on the side it
could go to, such as one between two ReLUs.

Folding is done in float64 and rounded once to the network's own type.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from maar.networks.checking import check
from maar.networks.layers import Normalize, Residual

BatchNorm = (nn.BatchNorm1d, nn.BatchNorm2d)


def fold(net: nn.Sequential) -> nn.Sequential:
    """A new network that equals `net` in evaluation mode, with fewer layers; `net` is untouched."""
    check(net)
    dtype = next((p.dtype for p in net.parameters()), torch.get_default_dtype())
    with torch.no_grad():
        folded = _fold(net)
    return folded.to(dtype).eval().requires_grad_(False)


def _fold(net: nn.Sequential) -> nn.Sequential:
    layers: list[nn.Module] = []
    for original in net:
        if isinstance(original, Residual):
            layers.append(Residual(_fold(original.body), _fold(original.shortcut)))
            continue
        # One copy per place: a module that stands in two places must not be folded twice.
        layer = copy.deepcopy(original).double()
        last = layers[-1] if layers else None
        if isinstance(layer, BatchNorm) and isinstance(last, (nn.Conv2d, nn.Linear)):
            _fold_back(last, *_scale_shift(layer))
        elif isinstance(layer, (nn.Conv2d, nn.Linear)):
            layers.append(layer)
            _fold_forward(layers)
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


def _fold_forward(layers: list[nn.Module]) -> None:
    """Fold the per-channel map before the last layer into it, where that is exact."""
    affine = layers[-1]
    flatten = len(layers) > 2 and isinstance(layers[-2], nn.Flatten)
    at = len(layers) - (3 if flatten else 2)
    if at < 0 or not isinstance(layers[at], (Normalize, *BatchNorm)):
        return
    scale, shift = _scale_shift(layers[at])
    if isinstance(affine, nn.Conv2d):
        if any(affine.padding) and shift.count_nonzero():
            return
        _fold_into_conv(affine, scale, shift)
    elif isinstance(affine, nn.Linear):
        # Flatten lays the channels out one after the other, so many features each.
        each = affine.in_features // len(scale)
        scale, shift = scale.repeat_interleave(each), shift.repeat_interleave(each)
        weight = affine.weight
        _set(affine, weight * scale, _bias(affine) + weight @ shift)
    del layers[at]


def _fold_into_conv(conv: nn.Conv2d, scale: Tensor, shift: Tensor) -> None:
    # Row o of a grouped weight sees the input channels of o's group only.
    groups, size = conv.groups, conv.in_channels // conv.groups
    rows = conv.out_channels // groups
    scale = scale.view(groups, size).repeat_interleave(rows, 0)
    shift = shift.view(groups, size).repeat_interleave(rows, 0)
    weight = conv.weight
    bias = _bias(conv) + (weight.sum((2, 3)) * shift).sum(1)
    _set(conv, weight * scale[:, :, None, None], bias)


def _fold_back(affine: nn.Conv2d | nn.Linear, scale: Tensor, shift: Tensor) -> None:
    weight = affine.weight * scale.view(-1, *[1] * (affine.weight.dim() - 1))
    _set(affine, weight, _bias(affine) * scale + shift)


def _scale_shift(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """The layer as y = scale * x + shift per channel."""
    if isinstance(layer, Normalize):
        scale = 1 / layer.std
        return scale, -layer.mean * scale
    assert isinstance(layer, BatchNorm)
    assert layer.running_mean is not None  # `check` has seen to it
    assert layer.running_var is not None
    scale = (layer.running_var + layer.eps).rsqrt()
    if layer.weight is not None:
        scale = scale * layer.weight
    shift = -layer.running_mean * scale
    return scale, shift if layer.bias is None else shift + layer.bias


def _bias(affine: nn.Conv2d | nn.Linear) -> Tensor:
    if affine.bias is None:
        return affine.weight.new_zeros(affine.weight.shape[0])
    return affine.bias


def _set(affine: nn.Conv2d | nn.Linear, weight: Tensor, bias: Tensor) -> None:
    affine.weight, affine.bias = nn.Parameter(weight), nn.Parameter(bias)
