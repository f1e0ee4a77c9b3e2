"""What an attack and bounds of the auditor's own say of images that were not broken."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from maar.certify import VERIFIERS
from maar.certify.audit.attack import attack
from maar.certify.audit.linear import SLACK, alpha_crown, crown, margins_of
from maar.certify.audit.points import lead
from maar.certify.network import Network
from maar.certify.query import Query
from maar.certify.verdict import Status

# How an image was checked, from weak to strong.
ATTACKED, CROWN, ALPHA_CROWN, COMPLETE = "attacked", "crown", "alpha_crown", "complete"
# Who is asked about an image that the other has settled: they share little beyond its CROWN bounds.
BRANCHING, SOLVER = "bab", "milp"
# Times as many restarts for an image that is attacked only. On the COLT authors' network, of its 22
# images that are not robust, two restarts break 20; the other two need ten or more.
HARDER = 10
OTHER_SEEDS = 1_000_000


@dataclass(frozen=True, eq=False)
class Task:
    """What is the same for all images. `complete`: seconds for another complete verifier, or 0."""

    net: nn.Sequential
    eps: float
    restarts: int
    seed: int
    complete: float = 0.0


@dataclass(frozen=True, eq=False)
class Job:
    """Images to look at together: [N, *shape] float32, labels, and who proved each ("": nobody)."""

    indices: list[int]
    x: np.ndarray
    y: list[int]
    by: list[str]


@dataclass(frozen=True)
class Seen:
    """What was found of one image."""

    index: int
    level: str
    margin: float
    """The least z_y - z_k that was found, in float64; at most zero, it is a counterexample."""
    target: int
    distance: float
    lb: float | None = None
    """The auditor's own lower bound of the margin."""


class Checker:
    """A task made ready."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.net = copy.deepcopy(task.net).cpu().eval().requires_grad_(False)
        self.exact = copy.deepcopy(self.net).double()
        self.network: Network | None = None

    def check(self, job: Job) -> list[Seen]:
        """Attack all images at once; bound, one by one, those that are said to be proved."""
        x, seeds = torch.from_numpy(job.x), [self.task.seed + index for index in job.indices]
        seen = self._attack(job.indices, x, job.y, self.task.restarts, seeds)
        for n, by in enumerate(job.by):
            if by and seen[n].margin > 0:
                seen[n] = self._prove(seen[n], x[n : n + 1], job.y[n], by)
        return seen

    def _attack(
        self, indices: list[int], x: Tensor, y: list[int], restarts: int, seeds: list[int]
    ) -> list[Seen]:
        worst = attack(self.net, x, torch.tensor(y), self.task.eps, restarts=restarts, seeds=seeds)
        with torch.no_grad():
            scores = self.exact(worst.point.double()).numpy()
        away = (worst.point.double() - x.double()).abs().flatten(1).max(1).values.tolist()
        leads = [lead(z, label) for z, label in zip(scores, y, strict=True)]
        return [
            Seen(index, ATTACKED, -ahead, target, distance)
            for index, (target, ahead), distance in zip(indices, leads, away, strict=True)
        ]

    def _prove(self, seen: Seen, x: Tensor, y: int, by: str) -> Seen:
        """Bounds; where they do not prove it, a harder attack; on request a complete verifier."""
        seen = self._bound(seen, x, y)
        if seen.level != ATTACKED:
            return seen
        restarts, seed = HARDER * self.task.restarts, self.task.seed + seen.index + OTHER_SEEDS
        (harder,) = self._attack([seen.index], x, [y], restarts, [seed])
        if harder.margin < seen.margin:
            seen = dataclasses.replace(harder, lb=seen.lb)
        if self.task.complete and seen.margin > 0:
            seen = self._complete(seen, x, y, by)
        return seen

    def _bound(self, seen: Seen, x: Tensor, y: int) -> Seen:
        enclosed, rows = margins_of(self.exact, x, y, self.task.eps)
        level, lb = CROWN, crown(enclosed, rows)
        if not bool((lb > SLACK).all()):
            level, lb = ALPHA_CROWN, alpha_crown(enclosed, rows, lb)
        least = float(lb.min())
        if least > SLACK:
            return dataclasses.replace(seen, level=level, lb=least)
        return dataclasses.replace(seen, lb=least)

    def _complete(self, seen: Seen, x: Tensor, y: int, by: str) -> Seen:
        name = SOLVER if by == BRANCHING else BRANCHING
        if name not in VERIFIERS:
            return seen
        self.network = self.network or Network(self.net, tuple(x.shape[1:]))
        query = Query.of(self.network, x, y, self.task.eps, seed=self.task.seed + seen.index)
        query = dataclasses.replace(query, deadline=time.monotonic() + self.task.complete)
        verifier = VERIFIERS[name]()
        with contextlib.suppress(TypeError):  # one without a limit of its own
            verifier = dataclasses.replace(verifier, seconds=self.task.complete)
        verdict = verifier(query)
        if verdict.status is Status.VERIFIED:
            return dataclasses.replace(seen, level=COMPLETE)
        if verdict.status is Status.FALSIFIED and verdict.counterexample is not None:
            point = verdict.counterexample.double()
            target, ahead = lead(self.exact(point)[0].numpy(), y)
            away = float((point - x.double()).abs().max())
            return dataclasses.replace(seen, margin=-ahead, target=target, distance=away)
        return seen
