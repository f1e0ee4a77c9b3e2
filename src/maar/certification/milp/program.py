"""A verifier that puts the image's reduced network before a solver, one open class at a time."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from maar.certification.crown import Found, Reduction, crown, reduced
from maar.certification.lookout import Lookout
from maar.certification.milp.encoding import Encoded, Encoder
from maar.certification.milp.refine import refine
from maar.certification.query import Query
from maar.certification.solvers import DEFAULT, DEFAULT_LP, SOLVERS
from maar.certification.solvers.model import Model
from maar.certification.solvers.solver import Answer, Solver, Status
from maar.certification.verdict import UNKNOWN, Verdict, proves
from maar.certification.verdict import Status as Outcome
from maar.core.errors import UsageError, unknown
from maar.domains.bound import Problem
from maar.domains.reduced.linear import Affine
from maar.domains.reduced.network import Reduced, TooLarge, reduce

PRECISION = torch.float64
# A solver stops at a point this far below zero: far enough to survive its rounding to float32, as
# a rule. Where it does not, the lowest point of all is asked for.
BELOW = -1e-4

Refinement = Literal["none", "lp"]


@dataclass(frozen=True)
class Program(ABC):
    """Subclasses say which ReLUs are exact.

    `solver`, of `SOLVERS`: for programs with exact ReLUs; `lp_solver`: for those without, and for
    every program's relaxation, which is looked at first. `refinement`: before that, refine the
    bounds on the second ReLU's input, neuron by neuron (docs/solvers.md). `seconds`: for all
    classes of an image together; the query's deadline may leave less.
    """

    name: ClassVar[str]
    complete: ClassVar[bool] = False
    """Whether a point below zero must be a counterexample."""
    share: ClassVar[float] = 1.0
    """How much of an image's time it may take: the rest is for a tighter program."""
    solver: str = DEFAULT
    lp_solver: str = DEFAULT_LP
    refinement: Refinement = "none"
    seconds: float = field(default=math.inf, repr=False)

    def __post_init__(self) -> None:
        for name in (self.solver, self.lp_solver):
            if name not in SOLVERS:
                raise unknown("solver", name, SOLVERS)
        if self.refinement not in ("none", "lp"):
            raise unknown("refinement", self.refinement, ("none", "lp"))
        if not self.seconds > 0:
            raise UsageError(f"seconds = {self.seconds!r} (accepted: a number > 0)")

    @abstractmethod
    def exact(self, network: Reduced, row: Affine) -> Tensor:
        """Which ReLUs the program of a row has as they are, [unstable ReLUs], bool."""

    @torch.no_grad()
    def __call__(self, query: Query) -> Verdict:
        """VERIFIED, FALSIFIED, or UNKNOWN with the margins found."""
        end = time.monotonic() + min(self.seconds, self.share * query.left())
        try:
            found = reduced(query, PRECISION, crown(query, PRECISION))
        except TooLarge:
            return UNKNOWN
        found = self._refined(query, found, end)
        assert found.reduction is not None
        network, rows = found.reduction.network, found.reduction.rows
        lb = dict(zip(query.targets, found.lb.tolist(), strict=True))
        encoder, lookout = Encoder(network), Lookout(query)
        # The nearest to being proved first: what is proved of an image that stays open is kept.
        for n in found.lb.argsort(descending=True).tolist():
            target, row = query.targets[n], rows[torch.tensor([n])]
            if proves(lb[target]):
                continue
            lb[target] = max(lb[target], self._prove(encoder, network, row, lookout, end))
            if lookout.point is not None:
                return Verdict(Outcome.FALSIFIED, counterexample=lookout.point)
        return Verdict.bounded(lb)

    def _prove(
        self, encoder: Encoder, network: Reduced, row: Affine, lookout: Lookout, end: float
    ) -> float:
        """A lower bound of the row; the lookout sees the solver's points."""
        encoded = encoder.lowest(row, self.exact(network, row))
        answer = self._solve(encoded.model.relaxed(), end)
        bound = answer.bound
        self._look(lookout, network, encoded, answer)
        # Once below zero will do, unless the point turns out to be none: then the lowest of all.
        for below in (BELOW, -math.inf):
            if proves(bound) or lookout.point is not None or encoded.model.is_lp:
                break
            answer = self._solve(encoded.model, end, below)
            bound = max(bound, answer.bound)
            self._look(lookout, network, encoded, answer)
            if answer.status is not Status.BROKEN or not self.complete:
                break
        return bound

    def _solve(self, model: Model, end: float, below: float = -math.inf) -> Answer:
        solver: Solver = SOLVERS[self.lp_solver if model.is_lp else self.solver]()
        return solver.solve(model, end - time.monotonic(), stop_above=0.0, stop_below=below)

    def _look(self, lookout: Lookout, network: Reduced, encoded: Encoded, answer: Answer) -> None:
        """Is the solver's point a counterexample, or near one?"""
        if answer.point is not None and answer.objective <= 0:
            lookout.climb(encoded.image(network, answer.point))

    def _refined(self, query: Query, found: Found, end: float) -> Found:
        """With the second ReLU's bounds refined; kept for later verifiers of this kind."""
        if self.refinement == "none":
            return found
        key = ("refined", self.lp_solver)
        if key not in query.memory:
            assert found.reduction is not None
            solver = SOLVERS[self.lp_solver]()
            known = refine(found.reduction.network, solver, end - time.monotonic())
            graph, ball = query.network.graph(PRECISION), query.ball(PRECISION)
            network, rows = reduce(Problem(graph, ball, query.margins(PRECISION), known))
            better = torch.maximum(found.lb, network.bounds(rows)[0][0])
            pre = network.boxes.pre()
            query.memory[key] = query.targets, Found(better, pre, Reduction(network, rows))
        targets, kept = query.memory[key]
        return kept.of(torch.tensor([targets.index(k) for k in query.targets]))
