"""The radius of one image by bisection: a lower end that is proved, an upper end that is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from maar.certification.agenda import Job
from maar.certification.cascade import Cascade, Settled
from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.verdict import Status
from maar.certification.verifiers.misclassified import Misclassified
from maar.certification.verifiers.pgd import Pgd
from maar.certification.workers import Task
from maar.regions.perturbation import Perturbation

# What can break an image but not prove it.
ATTACKS = (Misclassified, Pgd)


@dataclass(frozen=True)
class Question:
    """An eps that was asked about, and the answer."""

    eps: float
    verdict: str
    by: str | None
    seconds: float


@dataclass
class Measured(Settled):
    """How the search on one image ended.

    `status`: VERIFIED if the ends are close, UNKNOWN if they are not, else MISCLASSIFIED or ERROR.
    `by`, `target`, `margin` and `counterexample` are of the upper end.
    """

    lower: float = 0.0
    """Every image at most this far away is proved to be classified alike."""
    lower_by: str | None = None
    """The verifier that proved it; None if nothing was."""
    upper: float | None = None
    """How far away the counterexample is; None if there is none."""
    questions: list[Question] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class RadiusTask(Task):
    """`eps` is the largest radius to look for, `cascade.timeout` is for each question."""

    tolerance: float = 0.001

    def begin(self, network: Network, jobs: Sequence[Job]) -> list[Settled]:
        """Begin nothing: every question has an eps of its own."""
        return [Settled() for _ in jobs]

    def settle(self, network: Network, job: Job, begun: Settled) -> Measured:
        """Find the radius of one image."""
        return Search(network, self.cascade, job, self.moves).run(self.eps, self.tolerance)


class Search:
    """Questions about one image, and what is known of it.

    First the attacks alone, which are cheap where they find something; then proofs below what they
    broke, where attacks would be in vain.
    """

    def __init__(
        self, network: Network, cascade: Cascade, job: Job, moves: Perturbation | None = None
    ) -> None:
        self.network, self.job, self.moves = network, job, moves
        self.x = torch.from_numpy(job.x)[None]
        self.found = Measured()
        attacks, proofs = [], []
        for verifier in cascade.verifiers:
            (attacks if isinstance(verifier, ATTACKS) else proofs).append(verifier)
        self.attacks = replace(cascade, verifiers=tuple(attacks))
        self.proofs = replace(cascade, verifiers=tuple(proofs))

    def run(self, largest: float, tolerance: float) -> Measured:
        """Halve the gap until it is small, or until what is left of it is open."""
        found = self.found
        self._attack(largest, tolerance)
        top = largest if found.upper is None else found.upper
        self._prove(top, tolerance)
        if self._goes_on:
            top = largest if found.upper is None else found.upper
            found.status = Status.VERIFIED if top - found.lower <= tolerance else Status.UNKNOWN
        return found

    @property
    def _goes_on(self) -> bool:
        return self.found.status not in (Status.ERROR, Status.MISCLASSIFIED)

    def _attack(self, top: float, tolerance: float) -> None:
        """Look for the least eps at which the attacks break the image."""
        floor = 0.0
        while top - floor > tolerance and self.attacks.verifiers and self._goes_on:
            eps = (floor + top) / 2
            if self._ask(eps, self.attacks) is Status.FALSIFIED:
                assert self.found.upper is not None
                top = self.found.upper
            else:
                floor = eps

    def _prove(self, top: float, tolerance: float) -> None:
        """Look for the largest eps below `top` at which the image is proved."""
        found = self.found
        while top - found.lower > tolerance and self.proofs.verifiers and self._goes_on:
            eps = (found.lower + top) / 2
            if self._ask(eps, self.proofs) is not Status.VERIFIED:
                # (a proof that fails may have found a counterexample that is nearer still)
                top = eps if found.upper is None else min(eps, found.upper)

    def _ask(self, eps: float, cascade: Cascade) -> Status:
        found = self.found
        moves = None if self.moves is None else self.moves.at(eps)
        query = Query.of(self.network, self.x, self.job.y, eps, self.job.index, moves)
        settled = cascade.settle(query)
        seconds = sum(settled.times.values())
        found.questions.append(Question(eps, settled.status.value, settled.by, seconds))
        for name, taken in settled.times.items():
            found.times[name] = found.times.get(name, 0.0) + taken
        if settled.status is Status.VERIFIED:
            found.lower, found.lower_by = eps, settled.by
        elif settled.status in (Status.FALSIFIED, Status.MISCLASSIFIED):
            self._take_counterexample(settled)
        elif settled.status is Status.ERROR:
            found.status, found.error = Status.ERROR, f"at eps {eps:g}: {settled.error}"
        return settled.status

    def _take_counterexample(self, settled: Settled) -> None:
        found = self.found
        assert settled.counterexample is not None
        far = distance(settled.counterexample, self.job.x)
        if found.lower_by is not None and far <= found.lower:
            why = f"proved at eps {found.lower:g} by {found.lower_by}, broken at {far:g}"
            found.status, found.error = Status.ERROR, f"contradiction: {why} by {settled.by}"
            return
        if settled.status is Status.MISCLASSIFIED:
            found.status = Status.MISCLASSIFIED
        found.upper, found.by = far, settled.by
        found.counterexample = settled.counterexample
        found.target, found.margin = settled.target, settled.margin


def distance(point: np.ndarray, x: np.ndarray) -> float:
    """In the maximum norm; exact for float32 in [0, 1], else rounded up."""
    far = float(np.abs(point.astype(np.float64) - x.astype(np.float64)).max(initial=0.0))
    is_exact = min(x.min(), point.min()) >= 0 and max(x.max(), point.max()) <= 1
    return far if is_exact or not far else float(np.nextafter(far, np.inf))
