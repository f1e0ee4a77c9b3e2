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
        x, y = torch.from_numpy(job.x), torch.tensor(job.y)
        seeds = [self.task.seed + index for index in job.indices]
        worst = attack(self.net, x, y, self.task.eps, restarts=self.task.restarts, seeds=seeds)
        with torch.no_grad():
            scores = self.exact(worst.point.double()).numpy()
        away = (worst.point.double() - x.double()).abs().flatten(1).max(1).values.tolist()
        seen = []
        for n, index in enumerate(job.indices):
            target, ahead = lead(scores[n], job.y[n])
            found = Seen(index, ATTACKED, -ahead, target, away[n])
            if job.by[n] and found.margin > 0:
                found = self._bound(found, x[n : n + 1], job.y[n], job.by[n])
            seen.append(found)
        return seen

    def _bound(self, seen: Seen, x: Tensor, y: int, by: str) -> Seen:
        enclosed, rows = margins_of(self.exact, x, y, self.task.eps)
        level, lb = CROWN, crown(enclosed, rows)
        if not bool((lb > SLACK).all()):
            level, lb = ALPHA_CROWN, alpha_crown(enclosed, rows, lb)
        least = float(lb.min())
        if least > SLACK:
            return dataclasses.replace(seen, level=level, lb=least)
        seen = dataclasses.replace(seen, lb=least)
        return self._complete(seen, x, y, by) if self.task.complete else seen

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
