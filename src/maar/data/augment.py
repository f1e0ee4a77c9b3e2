"""Random changes to a batch of train images: a name -> a function of (images, generator).

All random numbers come from the given generator, and as many for each batch of one size, so that
a resumed run sees the same images as one that was never stopped.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import affine_grid, grid_sample, pad

Augment = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def none(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Leave the images as they are; no random number is drawn."""
    return x


def shift(x: torch.Tensor, generator: torch.Generator, padding: int = 2) -> torch.Tensor:
    """Shift by up to `padding` pixels over a black border."""
    down, right = (_draw(2 * padding + 1, len(x), generator, x.device) for _ in range(2))
    return _window(pad(x, (padding,) * 4), down, right, padding)


def crop_flip(x: torch.Tensor, generator: torch.Generator, padding: int = 4) -> torch.Tensor:
    """Shift by up to `padding` pixels over a black border, and mirror every second image."""
    return _cropped_and_flipped(pad(x, (padding,) * 4), generator, padding)


def edge_flip(x: torch.Tensor, generator: torch.Generator, padding: int = 2) -> torch.Tensor:
    """Shift by up to `padding` pixels over repeated edges, and mirror every second image.

    What the authors of the IBP family train with on CIFAR-10.
    """
    for side in (2, 3):
        places = torch.arange(-padding, x.shape[side] + padding, device=x.device)
        x = x.index_select(side, places.clamp(0, x.shape[side] - 1))
    return _cropped_and_flipped(x, generator, padding)


def affine(
    x: torch.Tensor,
    generator: torch.Generator,
    degrees: float = 10.0,
    scale: float = 0.1,
    padding: float = 2.0,
) -> torch.Tensor:
    """Turn by up to `degrees`, stretch by up to `scale` and shift by up to `padding` pixels.

    For digits, where mirroring would make another one. Between pixels the value is interpolated, so
    it stays between the least and the greatest; outside the image it is black.
    """
    device = generator.device
    angle, size, down, right = (
        2 * torch.rand(4, len(x), generator=generator, device=device) - 1
    ).to(x.device)
    angle, size = torch.deg2rad(degrees * angle), 1 + scale * size
    height, width = x.shape[2:]
    # Rows of the map from a place in the new image to one in the old, in halves of its sides.
    cos, sin = angle.cos() / size, angle.sin() / size
    across = torch.stack([cos, -sin * height / width, 2 * padding / width * right], 1)
    along = torch.stack([sin * width / height, cos, 2 * padding / height * down], 1)
    grid = affine_grid(torch.stack([across, along], 1), list(x.shape), align_corners=False)
    bright = x if x.is_floating_point() else x.float()
    moved = grid_sample(bright, grid.to(bright.dtype), align_corners=False)
    moved = moved.minimum(bright.amax((1, 2, 3), keepdim=True))  # rounding may be above it
    return moved if x.is_floating_point() else moved.round().to(x.dtype)


def _draw(high: int, n: int, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    # On the generator's own device, so that a CPU generator serves images on a GPU.
    return torch.randint(high, (n,), generator=generator, device=generator.device).to(device)


def _cropped_and_flipped(
    padded: torch.Tensor, generator: torch.Generator, padding: int
) -> torch.Tensor:
    ranges = (2 * padding + 1, 2 * padding + 1, 2)
    down, right, mirror = (_draw(high, len(padded), generator, padded.device) for high in ranges)
    moved = _window(padded, down, right, padding)
    return torch.where(mirror.bool()[:, None, None, None], moved.flip(-1), moved)


def _window(
    padded: torch.Tensor, down: torch.Tensor, right: torch.Tensor, padding: int
) -> torch.Tensor:
    # All windows of the padded image as a view; indexing copies one of them for each image.
    height, width = (side - 2 * padding for side in padded.shape[2:])
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(len(padded), device=padded.device), :, down, right]


AUGMENTS: dict[str, Augment] = {
    "none": none,
    "shift": shift,
    "affine": affine,
    "crop_flip": crop_flip,
    "edge_flip": edge_flip,
}
