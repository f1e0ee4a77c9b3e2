"""What the attacks share: runs over restarts and target classes, the best point, early exit.

One *run* climbs the loss from one start; the attacks differ in how (`run` of PGD,
of APGD). A run works on *rows*: the images of a batch, or (image, target class)
pairs if the attack is targeted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from maar.attacks.frozen import frozen
from maar.attacks.losses import LOSSES, LossName, margin
from maar.errors import UsageError, unknown
from maar.regions import Errors, Region
from maar.regions.region import take

# Rows leave a run when they are broken, but in packs: copying the rest costs about as much as an
# eighth of a step.
LEAVE_TOGETHER = 1 / 8
# Targeted runs take as many rows at a time as the caller's batch has images, at least this many.
MIN_ROWS = 128


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
    """What one run works on. `images` says which image of the batch each row belongs to."""

    suffix: nn.Module
    region: Region
    y: Tensor
    target: Tensor | None
    loss: LossName
    images: Tensor
    best: Best | None
    every_step: bool
    early_exit: bool

    def __len__(self) -> int:
        return len(self.y)

    def climb(self, e: Errors) -> tuple[Tensor, Errors]:
        """The loss of each row and its gradient in e: one forward and one backward pass."""
        leaves = tuple(group.detach().requires_grad_() for group in e)
        with torch.enable_grad():
            z = self.suffix(self.region.point(leaves))
            loss = LOSSES[self.loss](z, self.y, self.target)
        gradient = torch.autograd.grad(loss.sum(), leaves)
        self._note(e, z.detach(), last=False)
        return loss.detach(), gradient

    @torch.no_grad()
    def finish(self, e: Errors) -> Tensor:
        """The loss of each row at the end of the run: one forward pass."""
        z = self.suffix(self.region.point(e))
        self._note(e, z, last=True)
        return LOSSES[self.loss](z, self.y, self.target)

    def _note(self, e: Errors, z: Tensor, *, last: bool) -> None:
        if self.best is None:
            return
        margins = margin(z, self.y)
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


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Settings and driver of an attack; call it as `attack(net, region, y, generator=g) -> e`.

    The attacked layers are `net[region.at:]`, in the mode (train or eval) that the
    caller has chosen: in training mode each step would move BatchNorm's running
    statistics, so callers switch to eval mode first unless they want that. Weights
    get no gradients, and their `requires_grad` is as before when the call ends.
    """

    steps: int = 8
    """Updates of e. (COLT's public code says n steps and makes n - 1 updates.)"""
    restarts: int = 1
    """Runs from a fresh start; the best one counts."""
    random_start: bool = True
    """Start at e ~ U(-1,1); otherwise at the centre e = 0."""
    loss: LossName = "cross_entropy"
    targeted: bool = False
    """Run once for each other class instead of once away from y."""
    early_exit: bool = False
    """An image leaves as soon as it is broken."""

    def __post_init__(self) -> None:
        for name, least in (("steps", 0), ("restarts", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise UsageError(f"{name} = {value!r} (accepted: an integer >= {least})")
        if self.loss not in LOSSES:
            raise unknown("loss", self.loss, LOSSES)
        if self.restarts > 1 and not self.random_start:
            raise UsageError(
                f"restarts = {self.restarts} without random_start would run the same run again"
                " (accepted: restarts = 1, or random_start = true)"
            )

    @abstractmethod
    def run(self, rows: Rows, e: Errors) -> Errors:
        """Climb from e, which may be overwritten; return the last iterate of the rows left."""

    @property
    def keeps_every_step(self) -> bool:
        """Whether any iterate may be the result, or only the last one of a run."""
        return True

    def __call__(
        self, net: nn.Module, region: Region, y: Tensor, *, generator: torch.Generator
    ) -> Errors:
        """The worst e found for each image, detached."""
        with frozen(net):
            suffix = suffix_of(net, region)
            plain = not (self.keeps_every_step or self.early_exit or self.targeted)
            if plain and self.restarts == 1:
                images = torch.arange(len(region), device=region.device)
                return self.run(
                    self._rows(suffix, region, y, None, images, None),
                    self._start(region, generator),
                )
            best = Best(region)
            self.improve(best, suffix, region, y, generator=generator)
            return best.e

    def improve(
        self,
        best: Best,
        suffix: nn.Module,
        region: Region,
        y: Tensor,
        *,
        generator: torch.Generator,
        targets: Tensor | None = None,
    ) -> None:
        """Do all runs, better `best`. `targets` [N, classes] masks the classes worth a try."""
        for _ in range(self.restarts):
            # Drawn for the whole batch, so that who has left does not change the others' numbers.
            start = self._start(region, generator)
            for images, target in self._pieces(suffix, region, y, targets):
                if self.early_exit:
                    is_open = ~best.broken[images]
                    images, target = images[is_open], None if target is None else target[is_open]
                if len(images):
                    part = region.select(images)
                    rows = self._rows(suffix, part, y[images], target, images, best)
                    self.run(rows, take(start, images))

    def _rows(
        self,
        suffix: nn.Module,
        region: Region,
        y: Tensor,
        target: Tensor | None,
        images: Tensor,
        best: Best | None,
    ) -> Rows:
        if len(y) != len(region):
            raise UsageError(f"{len(y)} labels for a region of {len(region)} images")
        return Rows(
            suffix, region, y, target, self.loss, images, best,
            every_step=self.keeps_every_step, early_exit=self.early_exit,
        )  # fmt: skip

    def _start(self, region: Region, generator: torch.Generator) -> Errors:
        return region.random_start(generator) if self.random_start else region.zero()

    def _pieces(
        self, suffix: nn.Module, region: Region, y: Tensor, targets: Tensor | None
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        """The rows of one restart, as (image, target class or None), in pieces that fit memory."""
        if not self.targeted:
            images = torch.arange(len(region), device=region.device)
            yield images if targets is None else images[targets.any(1)], None
            return
        with torch.no_grad():
            z = suffix(region.point(region.zero()))
        wanted = torch.ones_like(z, dtype=torch.bool) if targets is None else targets.clone()
        wanted.scatter_(1, y[:, None], False)
        # Each image's likeliest target first: who breaks there spares its other targets.
        ranking = z.argsort(dim=1, descending=True)
        rank, images = wanted.gather(1, ranking).t().nonzero(as_tuple=True)
        target = ranking[images, rank]
        size = max(len(region), MIN_ROWS)
        yield from zip(images.split(size), target.split(size), strict=True)


def suffix_of(net: nn.Module, region: Region) -> nn.Module:
    """The layers behind the region. Any module will do for a region at the input."""
    if region.at == 0:
        return net
    if not isinstance(net, nn.Sequential):
        raise UsageError(
            f"a region at layer {region.at} needs an nn.Sequential to split there,"
            f" not a {type(net).__name__}"
        )
    return net[region.at :]
