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


def crop_flip(x: torch.Tensor, generator: torch.Generator, padding: int = 4) -> torch.Tensor:
    """Shift by up to `padding` pixels over a black border, and mirror every second image."""
    n, _, height, width = x.shape

    def draw(high: int) -> torch.Tensor:
        # On the generator's own device, so that a CPU generator serves images on a GPU.
        drawn = torch.randint(high, (n,), generator=generator, device=generator.device)
        return drawn.to(x.device)

    down, right, mirror = draw(2 * padding + 1), draw(2 * padding + 1), draw(2)
    # All windows of the padded image as a view; indexing copies one of them for each image.
    windows = pad(x, (padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    moved = windows[torch.arange(n, device=x.device), :, down, right]
    return torch.where(mirror.bool()[:, None, None, None], moved.flip(-1), moved)


AUGMENTS: dict[str, Augment] = {"none": none, "crop_flip": crop_flip}
