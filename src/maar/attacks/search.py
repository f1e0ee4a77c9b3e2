"""The attack of certification: a sequence of attacks, cheap to dear, whose finds are confirmed."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from maar.attacks.apgd import APGD
from maar.attacks.attack import Attack, Best, suffix_of
from maar.attacks.frozen import frozen
from maar.attacks.losses import margin
from maar.attacks.pgd import PGD
from maar.core.errors import UsageError
from maar.regions import Errors, Region
from maar.regions.region import take

# COLT's and hence the paper's: 20 restarts of 100 steps of 0.015 of the radius.
PAPER: tuple[Attack, ...] = (
    PGD(steps=100, step_size=0.015, restarts=20, keep="best", early_exit=True),
)
# Most breakable images fall to the first. After that, restarts find more than further steps do,
# and cross-entropy and the margin find different points. The last leaves no class untried.
STRONG: tuple[Attack, ...] = (
    PGD(steps=20, step_size=0.15, keep="best", early_exit=True),
    APGD(steps=50, loss="cross_entropy", restarts=10),
    APGD(steps=50, loss="margin", restarts=5),
    APGD(steps=50, loss="cross_entropy", targeted=True, restarts=2),
)
# Layers whose output for one image depends on the mode.
MODE_MATTERS = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


@dataclass(frozen=True)
class Found:
    """Result of a search. Row i of `point` and `e` is a counterexample where `broken[i]`."""

    broken: Tensor
    point: Tensor
    e: Errors
    margin: Tensor
    """max over k != y of z_k - z_y at the point."""


def search(
    net: nn.Module,
    region: Region,
    y: Tensor,
    *,
    attacks: Sequence[Attack] = STRONG,
    generator: torch.Generator,
    targets: Tensor | None = None,
    seconds: float = math.inf,
) -> Found:
    """Try to break each image; an image that is broken is left alone by the later attacks.

    `targets` [N, classes] masks the classes still open; an image without any is
    not attacked. Each find is replayed by a plain forward pass, in the network's
    precision and in float64, and counts only if another class is strictly ahead in
    both: it then breaks the network and not just its rounding. When `seconds` are over, no
    further attack begins.
    """
    end = time.monotonic() + seconds
    _check(net, region, y)
    with frozen(net):
        suffix = suffix_of(net, region)
        best = Best(region)
        confirmed = torch.zeros_like(best.broken)
        for attack in attacks:
            if time.monotonic() >= end:
                break
            left = None if targets is None else targets & ~confirmed[:, None]
            # Early exit whatever the attack says: a confirmed point must not be replaced.
            attack = replace(attack, early_exit=True)
            attack.improve(best, suffix, region, y, generator=generator, targets=left)
            claimed = best.broken & ~confirmed
            confirmed |= _replay(suffix, region, y, best, claimed)
            # A find that did not hold is no better than a tie; the next attack tries again.
            best.margin[claimed & ~confirmed] = 0.0
        with torch.no_grad():
            point = region.point(best.e)
    return Found(confirmed, point, best.e, best.margin)


@torch.no_grad()
def _replay(suffix: nn.Module, region: Region, y: Tensor, best: Best, rows: Tensor) -> Tensor:
    """The mask of those `rows` that are broken in both precisions."""
    holds = torch.zeros_like(rows)
    if bool(rows.any()):
        point = region.select(rows).point(take(best.e, rows))
        exact = copy.deepcopy(suffix).double()
        holds[rows] = (margin(suffix(point), y[rows]) > 0) & (
            margin(exact(point.double()), y[rows]) > 0
        )
    return holds


def _check(net: nn.Module, region: Region, y: Tensor) -> None:
    for name, layer in net.named_modules():
        if layer.training and isinstance(layer, MODE_MATTERS):
            raise UsageError(
                f"layer {name} ({type(layer).__name__}) is in training mode: an image's verdict"
                " would depend on its batch or on chance; call net.eval() first"
            )
    if len(region) == 0:
        return
    with torch.no_grad():
        first = region.select(torch.zeros(1, dtype=torch.long, device=region.device))
        classes = suffix_of(net, region)(first.point(first.zero())).shape[1]
    wrong = y[(y < 0) | (y >= classes)]
    if len(wrong):
        raise UsageError(
            f"label {int(wrong[0])} is out of range (accepted: 0 to {classes - 1},"
            f" as the network has {classes} outputs)"
        )
