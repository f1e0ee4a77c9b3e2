"""Random changes to a batch of train images: a name -> a function of (images, generator).

All random numbers come from the given generator, and as many for each batch of one size, so that
a resumed run sees the same images as one that was never stopped.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import pad

Augment = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def none(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Leave the images as they are; no random number is drawn."""
    return x


def shift(x: torch.Tensor, generator: torch.Generator, padding: int = 2) -> torch.Tensor:
    """Shift by up to `padding` pixels over a black border."""
    down, right = (_draw(2 * padding + 1, len(x), generator, x.device) for _ in range(2))
    return _moved(x, down, right, padding)


def crop_flip(x: torch.Tensor, generator: torch.Generator, padding: int = 4) -> torch.Tensor:
    """Shift by up to `padding` pixels over a black border, and mirror every second image."""
    ranges = (2 * padding + 1, 2 * padding + 1, 2)
    down, right, mirror = (_draw(high, len(x), generator, x.device) for high in ranges)
    moved = _moved(x, down, right, padding)
    return torch.where(mirror.bool()[:, None, None, None], moved.flip(-1), moved)


def _draw(high: int, n: int, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    # On the generator's own device, so that a CPU generator serves images on a GPU.
    return torch.randint(high, (n,), generator=generator, device=generator.device).to(device)


def _moved(x: torch.Tensor, down: torch.Tensor, right: torch.Tensor, padding: int) -> torch.Tensor:
    # All windows of the padded image as a view; indexing copies one of them for each image.
    windows = pad(x, (padding,) * 4).unfold(2, x.shape[2], 1).unfold(3, x.shape[3], 1)
    return windows[torch.arange(len(x), device=x.device), :, down, right]


AUGMENTS: dict[str, Augment] = {"none": none, "shift": shift, "crop_flip": crop_flip}
