"""The input gradient of a convolution with few input channels, as a convolution of its own.

oneDNN computes it in a way made for many input channels: at a network's first layer, with 1 or 3
of them, it takes longer than the second layer's, which has ten times the work. A patch of
neighbouring input pixels, however, is a linear map of a small window of outputs, the same one for
each patch: the gradient is a convolution with (pixels of a patch x channels) outputs, laid out
by a shuffle. Milliseconds for a batch of 100, one thread, channels last:

    1 -> 32, kernel 5, stride 2, 28 x 28    6.0 -> 1.5
    3 -> 32, kernel 5, stride 2, 32 x 32    7.8 -> 2.8
    3 -> 32, kernel 3, stride 1, 32 x 32    7.7 -> 5.6
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# Vector registers hold 8 floats: fewer outputs of a convolution cost as much as 8.
LANES = 8
# From here on oneDNN's own is as good.
MANY_CHANNELS = 8

Pair = tuple[int, int]


@dataclass(frozen=True)
class InputGradient:
    """d(sum of g * conv(v)) / dv as a function of g."""

    weight: Tensor
    stride: Pair
    padding: Pair
    patch: Pair
    image: tuple[int, int, int]

    @classmethod
    def of(
        cls, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair, groups: int, v: Tensor
    ) -> InputGradient | None:
        """For a convolution of v, or None where it would not be faster or not be exact."""
        image = (v.shape[1], v.shape[2], v.shape[3])
        plain = groups == 1 and tuple(dilation) == (1, 1)
        if v.device.type != "cpu" or not plain or image[0] >= MANY_CHANNELS:
            return None
        # A patch has to be a multiple of the stride. A pixel of stride 1 would waste most lanes.
        patch = (stride[0], max(stride[1], 2))
        kernel = (weight.shape[2], weight.shape[3])
        taps, before = zip(
            *(_taps(*sizes, weight) for sizes in zip(kernel, stride, padding, patch, strict=True)),
            strict=True,
        )
        # Row (a, b, c) of the new weight: what the pixel (a, b) of a patch gets in channel c.
        turned = torch.einsum("ahk,bwl,ockl->abcohw", *taps, weight).flatten(0, 2)
        missing = -len(turned) % LANES
        turned = torch.cat([turned, turned.new_zeros(missing, *turned.shape[1:])])
        turned = turned.contiguous(memory_format=torch.channels_last)
        steps = (patch[0] // stride[0], patch[1] // stride[1])
        found = cls(turned, steps, (before[0], before[1]), patch, image)
        return found if found._covers(weight, stride, padding) else None

    def __call__(self, g: Tensor) -> Tensor:
        channels, height, width = self.image
        rows, columns = self.patch
        used = rows * columns * channels
        out = F.conv2d(g, self.weight, None, self.stride, self.padding).permute(0, 2, 3, 1)
        out = out[..., :used].unflatten(3, (rows, columns, channels)).transpose(2, 3)
        return out.flatten(3, 4).flatten(1, 2)[:, :height, :width].permute(0, 3, 1, 2)

    def _covers(self, weight: Tensor, stride: Pair, padding: Pair) -> bool:
        """Whether the patches reach the image's end with the same padding as at its start."""
        if min(self.padding) < 0:
            return False
        for axis in (0, 1):
            size = self.image[axis + 1]
            outputs = (size + 2 * padding[axis] - weight.shape[axis + 2]) // stride[axis] + 1
            windows = outputs + 2 * self.padding[axis] - self.weight.shape[axis + 2]
            if (windows // self.stride[axis] + 1) * self.patch[axis] < size:
                return False
        return True


def _taps(kernel: int, stride: int, padding: int, patch: int, like: Tensor) -> tuple[Tensor, int]:
    """T[a, t, k] = 1 where pixel a of a patch meets tap k at output t of its window; and how far
    the window starts before the patch's own first output.

    Pixel i meets tap k at output (i + padding - k) / stride, if that is whole.
    """
    pixel = torch.arange(patch, device=like.device)[:, None]
    place = pixel + padding - torch.arange(kernel, device=like.device)
    whole = place % stride == 0
    output = place.div(stride, rounding_mode="floor")
    start = int(output[whole].min())
    window = torch.arange(start, int(output[whole].max()) + 1, device=like.device)
    meets = (output[:, None] == window[:, None]) & whole[:, None]
    return meets.to(like.dtype), -start
