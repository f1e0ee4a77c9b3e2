"""A warning where --mean and --std are given to a network that normalises by itself."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

    from maar.cli.subject import Subject
    from maar.data import DataSet

IMAGES = 300
"""The first of the data set are looked at, whichever are asked about."""
LOSS = 0.05
"""So much less accuracy is worth a warning."""


def check_normalisation(subject: Subject, data: DataSet, split: str) -> None:
    """Warn on stderr if the network is less accurate with --mean and --std than without them."""
    if subject.source["mean"] is None and subject.source["std"] is None:
        return
    from torch import nn

    indices = list(range(min(IMAGES, data.size(split))))
    x, y = data.images(split, indices), data.labels(split, indices)
    # The reader puts the two in front, as a layer of its own.
    bare = nn.Sequential(*list(subject.net)[1:])
    with_them, without = _accuracy(subject.net, x, y), _accuracy(bare, x, y)
    if without - with_them >= LOSS:
        print(
            f"maar: warning: {subject.name} is right on {100 * with_them:.1f} % of the first "
            f"{len(indices)} {split} images with --mean and --std, on {100 * without:.1f} % "
            "without them: it may normalise by itself",
            file=sys.stderr,
        )


def _accuracy(net: nn.Sequential, x: Tensor, y: Tensor) -> float:
    import torch

    with torch.no_grad():
        answers = torch.cat([net(part).argmax(1) for part in x.split(50)])
    return (answers == y).float().mean().item()
