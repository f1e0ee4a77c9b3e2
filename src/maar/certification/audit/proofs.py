"""Check images that were not broken, by an attack and bounds of the auditor's own."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from maar.certification import VERIFIERS
from maar.certification.audit.attack import attack
from maar.certification.audit.linear import SLACK, alpha_crown, crown, is_bounded, margins_of
from maar.certification.audit.points import Limits, lead
from maar.certification.audit.repeat import Repeated, rebuild, repeat
from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.verdict import Status, proves
from maar.regions.perturbation import Perturbation

# How an image was checked. Of one that is on trust nothing was proved again; one that claims
# nothing, as every class is open, was attacked.
TRUST, ATTACKED, REPEATED = "trust", "attacked", "repeated"
CROWN, ALPHA_CROWN, COMPLETE = "crown", "alpha_crown", "complete"
# Who is asked about an image that the other has settled: they share little beyond its CROWN bounds.
BRANCHING, SOLVER = "bab", "milp"
# Times as many restarts for an image that is attacked only. On the COLT authors' network, of its 22
# images that are not robust, two restarts break 20; the other two need ten or more.
HARDER = 10
OTHER_SEEDS = 1_000_000


@dataclass(frozen=True, eq=False)
class Task:
    """Settings common to all images. `complete`: seconds for another complete verifier, or 0."""

    net: nn.Sequential
    near: Limits
    restarts: int
    seed: int
    complete: float = 0.0
    settings: Mapping[str, str] = field(default_factory=dict)
    """The verifiers of the folder by name, as its key spells them."""
    moves: Perturbation | None = None
    """The same as `near` for maar's own verifiers, where it is not the usual one."""


@dataclass(frozen=True)
class Claim:
    """A line's claim: these classes are proved to be behind y, the last one by this verifier."""

    classes: tuple[int, ...] = ()
    by: str = ""
    """Empty if the image is still open."""
    asked: tuple[str, ...] = ()
    """Every verifier that was asked."""


@dataclass(frozen=True, eq=False)
class Job:
    """Images to look at together: [N, *shape] float32, labels, and what is said of each."""

    indices: list[int]
    x: np.ndarray
    y: list[int]
    claims: list[Claim]


@dataclass(frozen=True)
class Seen:
    """Findings on one image."""

    index: int
    level: str
    margin: float
    """The least z_y - z_k that was found, in float64; at most zero, it is a counterexample."""
    target: int
    distance: float
    lb: float | None = None
    """The auditor's own lower bound of the margin over the classes of the claim."""
    proves_all: bool = False
    """Whether the auditor's bounds prove every class, those that are said to be open too."""
    repeated: Repeated | None = None


class Checker:
    """A task made ready."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.net = copy.deepcopy(task.net).cpu().eval().requires_grad_(False)
        self.exact = copy.deepcopy(self.net).double()
        self.network: Network | None = None
        self.bounds = rebuild(task.settings)

    def check(self, job: Job) -> list[Seen]:
        """Attack all images at once; bound, one by one, those of which something is claimed."""
        x, seeds = torch.from_numpy(job.x), [self.task.seed + index for index in job.indices]
        seen = self._attack(job.indices, x, job.y, self.task.restarts, seeds)
        for n, claim in enumerate(job.claims):
            if seen[n].margin > 0 or not claim.by:
                seen[n] = self._prove(seen[n], x[n : n + 1], job.y[n], claim)
        return seen

    def _attack(
        self, indices: list[int], x: Tensor, y: list[int], restarts: int, seeds: list[int]
    ) -> list[Seen]:
        worst = attack(self.net, x, torch.tensor(y), self.task.near, restarts=restarts, seeds=seeds)
        with torch.no_grad():
            scores = self.exact(worst.point.double()).numpy()
        away = (worst.point.double() - x.double()).abs().flatten(1).max(1).values.tolist()
        leads = [lead(z, label) for z, label in zip(scores, y, strict=True)]
        return [
            Seen(index, TRUST, -ahead, target, distance)
            for index, (target, ahead), distance in zip(indices, leads, away, strict=True)
        ]

    def _prove(self, seen: Seen, x: Tensor, y: int, claim: Claim) -> Seen:
        """Bound the claim again; attack harder what the audit's own bounds do not prove."""
        seen = self._bound(seen, x, y, claim)
        if not claim.classes:
            return seen
        self.network = self.network or Network(self.net, tuple(x.shape[1:]))
        repeated = repeat(
            self.bounds, claim.asked, self.network, x, y, self.task.near.eps, self.task.moves
        )
        seen = dataclasses.replace(seen, repeated=repeated)
        if seen.level != TRUST:
            return seen
        if repeated and all(proves(repeated.lb.get(k, 0.0)) for k in claim.classes):
            seen = dataclasses.replace(seen, level=REPEATED)
        if not claim.by:
            return seen
        restarts, seed = HARDER * self.task.restarts, self.task.seed + seen.index + OTHER_SEEDS
        (harder,) = self._attack([seen.index], x, [y], restarts, [seed])
        if harder.margin < seen.margin:
            where = {"target": harder.target, "distance": harder.distance}
            seen = dataclasses.replace(seen, margin=harder.margin, **where)
        if self.task.complete and seen.margin > 0:
            seen = self._complete(seen, x, y, claim.by)
        return seen

    def _bound(self, seen: Seen, x: Tensor, y: int, claim: Claim) -> Seen:
        """CROWN of the auditor's own, then alpha-CROWN for what it leaves open."""
        if not is_bounded(self.exact):
            return dataclasses.replace(seen, level=TRUST if claim.classes else ATTACKED)
        enclosed, rows = margins_of(self.exact, x, y, self.task.near)
        classes = [k for k in range(len(rows) + 1) if k != y]
        claimed = torch.tensor([k in claim.classes for k in classes])
        level, lb = CROWN, crown(enclosed, rows)
        if not bool((lb[claimed] > SLACK).all()):
            level, lb = ALPHA_CROWN, alpha_crown(enclosed, rows, lb)
        if not bool((lb[claimed] > SLACK).all()):
            level = TRUST
        return dataclasses.replace(
            seen,
            level=level if claim.classes else ATTACKED,
            lb=float(lb[claimed].min()) if claim.classes else None,
            proves_all=bool((lb > SLACK).all()),
        )

    def _complete(self, seen: Seen, x: Tensor, y: int, by: str) -> Seen:
        name = SOLVER if by == BRANCHING else BRANCHING
        if name not in VERIFIERS:
            return seen
        assert self.network is not None
        seed, eps = self.task.seed + seen.index, self.task.near.eps
        query = Query.of(self.network, x, y, eps, seed, self.task.moves)
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
