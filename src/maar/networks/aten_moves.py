"""ATen operations that only move numbers, those that do nothing, and those that never come."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from maar.networks.maps import Move, Reshape


class Refusal(Exception):
    """An operation that is not supported, or not in this way."""


SAME = {
    *("dropout", "dropout_", "feature_dropout", "alpha_dropout", "alias", "clone", "contiguous"),
    *("detach", "detach_", "lift_fresh_copy", "to", "_to_copy", "identity"),
}
"""Operations that do nothing in evaluation mode."""

MOVES = {
    *("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "permute"),
    *("transpose", "t", "slice", "select", "index_select", "split", "split_with_sizes", "chunk"),
    *("unbind", "expand", "repeat", "repeat_interleave", "flip", "roll", "movedim", "swapaxes"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "constant_pad_nd", "pad", "narrow"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "slice_copy", "view_copy"),
    *("reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d"),
}
"""Operations that only move numbers: they are asked themselves where each number goes."""

HINTS = {
    "sign": "it jumps, so that no bound is tight near 0",
    "gelu": "use ReLU or SiLU in its place",
    "layer_norm": "its scale depends on the image; use BatchNorm",
    "native_layer_norm": "its scale depends on the image; use BatchNorm",
    "group_norm": "its scale depends on the image; use BatchNorm",
    "instance_norm": "its scale depends on the image; use BatchNorm",
    "argmax": "give the scores themselves",
    "bmm": "a product of two computed matrices has no bound here",
    "scaled_dot_product_attention": "attention has no bound here",
    "upsample_bilinear2d": "use mode='nearest'",
}


def moved(
    target: Any, shape: tuple[int, ...], batch: int, args: list[Any], options: dict[str, Any]
) -> list[nn.Module | None]:
    """The layers of a move, one for each value that it gives; None: nothing changes."""
    size = torch.Size(shape).numel()
    each = torch.arange(batch, dtype=torch.float64).view(-1, *[1] * len(shape)) * size
    # 0 is what padding puts in; images have places of their own, to see whether any is mixed.
    places = 1 + torch.arange(size, dtype=torch.float64).view(1, *shape) + each
    name = getattr(target, "__name__", "")
    numbers = [arg for arg in (*args[1:], *options.values()) if isinstance(arg, float)]
    if "pad" in name and any(numbers):
        raise Refusal(f"padding with {numbers[0]} is not supported (accepted: 0)")
    result = target(places, *args, **options)
    results = result if isinstance(result, tuple | list) else [result]
    return [_move(made, places, size) for made in results]


def _move(made: Tensor, before: Tensor, size: int) -> nn.Module | None:
    batch = len(before)
    if made.dim() < 1 or len(made) != batch:
        raise Refusal(f"it moves the batch axis (shape {tuple(made.shape)} of {batch} images)")
    first = made[0]
    each = torch.arange(batch).view(-1, *[1] * first.dim()) * size
    if not bool((made == torch.where(first > 0, first + each, first)).all()):
        raise Refusal("it mixes the images of a batch")
    first = first.view(1) if first.dim() == 0 else first  # (one number for each image)
    if first.shape == before.shape[1:] and bool((first == before[0]).all()):
        return None
    if first.numel() == size and bool((first.flatten() == before[0].flatten()).all()):
        return nn.Flatten() if first.dim() == 1 else Reshape(first.shape)
    return Move(first.long() - 1)
