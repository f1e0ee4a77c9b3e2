"""The working set of one run: which rows, where they stand, what was found for each image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from maar.attacks.fast.gradient import Climber, Unknown
from maar.attacks.losses import LOSSES, LossName, margin
from maar.regions import Errors, Region
from maar.regions.region import take

# Rows leave a run when they are broken, but in packs: copying the rest costs about as much as an
# eighth of a step.
LEAVE_TOGETHER = 1 / 8


class Best:
    """For each image the point with the largest margin so far; > 0 means that it is broken."""

    def __init__(self, region: Region) -> None:
        self.e = region.zero()
        self.margin = torch.full(
            (len(region),), float("-inf"), dtype=region.dtype, device=region.device
        )

    @property
    def broken(self) -> Tensor:
        return self.margin > 0

    def offer(self, images: Tensor, e: Errors, margins: Tensor) -> None:
        """Take over the rows that beat their image's best. An image may come in several rows."""
        rows = (margins > self.margin[images]).nonzero().squeeze(1)
        # Among rows of one image the largest margin wins: sort, then keep each image's last row.
        rows = rows[margins[rows].argsort(stable=True)]
        place = torch.arange(len(rows), device=rows.device)
        last = place.new_full((len(self.margin),), -1)
        last.scatter_reduce_(0, images[rows], place, "amax")
        rows = rows[last[last >= 0]]
        self.margin[images[rows]] = margins[rows]
        for best, group in zip(self.e, e, strict=True):
            best[images[rows]] = group[rows]


@dataclass(frozen=True)
class Rows:
    """The working set of one run. `images` says which image of the batch each row belongs to."""

    suffix: nn.Module
    region: Region
    y: Tensor
    target: Tensor | None
    loss: LossName
    images: Tensor
    best: Best | None
    every_step: bool
    early_exit: bool
    of_target: bool = False
    """Whether a row's margin is that of its target, rather than of the best other class."""

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def climber(self) -> Climber | None:
        """The fast way to the gradient, where there is one."""
        if not len(self):
            return None
        try:
            return Climber(self.suffix, self.region, self.y, self.target, self.loss)
        except Unknown:
            return None

    def climb(self, e: Errors) -> tuple[Tensor, Errors]:
        """The loss of each row and its gradient in e: one forward and one backward pass."""
        if self.climber is not None:
            z, gradient = self.climber.gradient(e)
            self._note(e, z, last=False)
            return LOSSES[self.loss](z, self.y, self.target), gradient
        leaves = tuple(group.detach().requires_grad_() for group in e)
        with torch.enable_grad():
            z = self.suffix(self.region.point(leaves))
            loss = LOSSES[self.loss](z, self.y, self.target)
            gradient = torch.autograd.grad(loss.sum(), leaves)
        self._note(e, z.detach(), last=False)
        return loss.detach(), gradient

    @torch.no_grad()
    def finish(self, e: Errors) -> None:
        """Look at where the run has ended: one forward pass."""
        self._note(e, self.suffix(self.region.point(e)), last=True)

    def _note(self, e: Errors, z: Tensor, *, last: bool) -> None:
        if self.best is None:
            return
        found = margin(z, self.y, self.target if self.of_target else None)
        margins = found.to(self.best.margin.dtype)  # (within autocast, z is in less)
        if last or self.every_step:
            self.best.offer(self.images, e, margins)
        elif self.early_exit:
            broken = margins > 0
            self.best.offer(self.images[broken], take(e, broken), margins[broken])

    def still_open(self) -> Tensor | None:
        """Mask of the rows to carry on with, or None for all of them."""
        if not self.early_exit or self.best is None:
            return None
        is_open = ~self.best.broken[self.images]
        left = int(is_open.sum())
        return is_open if len(self) - left >= max(1, LEAVE_TOGETHER * len(self)) else None

    def select(self, index: Tensor) -> Rows:
        return replace(
            self,
            region=self.region.select(index),
            y=self.y[index],
            target=None if self.target is None else self.target[index],
            images=self.images[index],
        )
