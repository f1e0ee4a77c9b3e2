"""Settings that all attacks share, and their runs over restarts and target classes.

One *run* climbs the loss from one start; the attacks differ in how (`run` of PGD,
of APGD). A run works on *rows*: the images of a batch, or (image, target class)
pairs if the attack is targeted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from maar.attacks.frozen import frozen
from maar.attacks.losses import LOSSES, LossName
from maar.attacks.rows import Best, Rows
from maar.core.errors import UsageError, unknown
from maar.regions import Errors, Region

# Runs are done side by side until they have this many rows: fewer leave a CPU half idle. Beyond
# that, a run has at most as many rows as the caller's batch has images, so that memory is theirs.
MIN_ROWS = 32


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
    """What is climbed."""
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
        """The worst e found for each image, detached.

        One run by cross-entropy that keeps its last point also takes probabilities [N, classes]
        for y: it then climbs the KL divergence from them.
        """
        with frozen(net):
            suffix = suffix_of(net, region)
            if self._is_one_plain_run:
                rows = self._rows(suffix, region, y, best=None)
                return self.run(rows, self._start(region, generator))
            best = Best(region)
            self.improve(best, suffix, region, y, generator=generator)
            return best.e

    @property
    def _is_one_plain_run(self) -> bool:
        """Whether the last iterate of a single run is the answer, so that none need be compared."""
        several = self.restarts > 1 or self.targeted
        return not (several or self.early_exit or self.keeps_every_step)

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
        batch = self._rows(suffix, region, y, best)
        images, target = self._pairs(suffix, region, y, targets)
        pairs = torch.arange(len(images), device=region.device)
        left = self.restarts
        while left:
            pairs = pairs[self._is_open(images[pairs], best)]
            if not len(pairs):
                return
            together = min(left, max(1, MIN_ROWS // len(pairs)))
            left -= together
            # Drawn for the whole batch, so that who has left does not change the others' numbers.
            starts = [self._start(region, generator) for _ in range(together)]
            start = tuple(torch.stack(groups) for groups in zip(*starts, strict=True))
            runs = torch.cartesian_prod(torch.arange(together, device=pairs.device), pairs)
            for part in runs.split(max(len(region), MIN_ROWS)):
                restart, pair = part[self._is_open(images[part[:, 1]], best)].unbind(1)
                if len(pair):
                    image = images[pair]
                    rows = batch.select(image)
                    if target is not None:
                        rows = replace(rows, target=target[pair])
                    self.run(rows, tuple(group[restart, image] for group in start))

    def _is_open(self, images: Tensor, best: Best) -> Tensor:
        broken = best.broken[images]
        return ~broken if self.early_exit else torch.ones_like(broken)

    def _start(self, region: Region, generator: torch.Generator) -> Errors:
        return region.random_start(generator) if self.random_start else region.zero()

    def _rows(self, suffix: nn.Module, region: Region, y: Tensor, best: Best | None) -> Rows:
        """The whole batch, untargeted."""
        if len(y) != len(region):
            raise UsageError(f"{len(y)} labels for a region of {len(region)} images")
        return Rows(
            suffix=suffix,
            region=region,
            y=y,
            target=None,
            loss=self.loss,
            images=torch.arange(len(region), device=region.device),
            best=best,
            every_step=self.keeps_every_step,
            early_exit=self.early_exit,
        )

    def _pairs(
        self, suffix: nn.Module, region: Region, y: Tensor, targets: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The rows of one restart: images, and the target class of each if there is one."""
        if not self.targeted:
            images = torch.arange(len(region), device=region.device)
            return images if targets is None else images[targets.any(1)], None
        with torch.no_grad():
            z = suffix(region.point(region.zero()))
        wanted = torch.ones_like(z, dtype=torch.bool) if targets is None else targets.clone()
        wanted.scatter_(1, y[:, None], False)
        # Each image's likeliest target first: who breaks there spares its other targets.
        ranking = z.argsort(dim=1, descending=True)
        rank, images = wanted.gather(1, ranking).t().nonzero(as_tuple=True)
        return images, ranking[images, rank]


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
