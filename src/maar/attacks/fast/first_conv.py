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
from typing import NamedTuple

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
        """For a convolution of v, or None where it would not be faster."""
        image = (v.shape[1], v.shape[2], v.shape[3])
        plain = groups == 1 and tuple(dilation) == (1, 1)
        if v.device.type != "cpu" or not plain or image[0] >= MANY_CHANNELS:
            return None
        # A patch has to be a multiple of the stride. A pixel of stride 1 would waste most lanes.
        patch = (stride[0], max(stride[1], 2))
        tall = _windows(weight.shape[2], stride[0], padding[0], patch[0], image[1])
        wide = _windows(weight.shape[3], stride[1], padding[1], patch[1], image[2])
        # Row (a, b, c) of the new weight: what the pixel (a, b) of a patch gets in channel c.
        meets = (side.meets.to(weight) for side in (tall, wide))
        turned = torch.einsum("ahk,bwl,ockl->abcohw", *meets, weight).flatten(0, 2)
        missing = -len(turned) % LANES
        turned = torch.cat([turned, turned.new_zeros(missing, *turned.shape[1:])])
        turned = turned.contiguous(memory_format=torch.channels_last)
        return cls(turned, (tall.step, wide.step), (tall.padding, wide.padding), patch, image)

    def __call__(self, g: Tensor) -> Tensor:
        channels, height, width = self.image
        rows, columns = self.patch
        used = rows * columns * channels
        out = F.conv2d(g, self.weight, None, self.stride, self.padding).permute(0, 2, 3, 1)
        out = out[..., :used].unflatten(3, (rows, columns, channels)).transpose(2, 3)
        return out.flatten(3, 4).flatten(1, 2)[:, :height, :width].permute(0, 3, 1, 2)


class Windows(NamedTuple):
    """Along one side of the image: which outputs the pixels of a patch meet, and where."""

    meets: Tensor
    """[a, t, k] is 1 where pixel a of a patch meets tap k at output t of its window."""
    step: int
    """Outputs from a patch's window to the next one's."""
    padding: int


def _windows(kernel: int, stride: int, padding: int, patch: int, size: int) -> Windows:
    """Pixel i meets tap k at output (i + padding - k) / stride, if that is whole."""
    place = torch.arange(patch)[:, None] + padding - torch.arange(kernel)
    whole = place % stride == 0
    output = place.div(stride, rounding_mode="floor")
    step = patch // stride
    # The window of the first patch starts `before` its outputs, in the padding. That is the same at
    # the end of the image, so the window is made longer where the last patch asks for more.
    last = int(output[whole].max())
    outputs = (size + 2 * padding - kernel) // stride + 1
    last_patch = -(-size // patch) - 1
    before = max(0, -int(output[whole].min()), last_patch * step + last + 1 - outputs)
    window = torch.arange(-before, last + 1)[:, None]
    meets = (output[:, None] == window) & whole[:, None]
    return Windows(meets, step, before)
