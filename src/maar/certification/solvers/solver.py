"""The interface of a solver, and which of its numbers count.

A solver computes in floating point and calls a point feasible that misses a row by its tolerance.
So its bound is never taken as it is: of an LP only the dual vector is taken, and the bound
recomputed from it (`dual.py`); from a MILP's bound the most that tolerances can make is taken off.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import ClassVar

import numpy as np

from maar.certification.solvers.dual import safe_bound
from maar.certification.solvers.model import Model
from maar.certification.solvers.scaling import scaled
from maar.core.errors import UsageError

# What solvers are asked for, in rows and in reduced costs. Their own defaults are 1e-6 to 1e-7.
TOLERANCE = 1e-9
# A cost this much larger than what can change in it is lost on a solver (for SCIP, 1e20 is inf).
HUGE = 1e10


class Status(str, enum.Enum):
    """Why a solver stopped."""

    OPTIMAL = "optimal"
    PROVED = "proved"
    """The bound is above `stop_above`."""
    BROKEN = "broken"
    """A point is below `stop_below`."""
    TIMEOUT = "timeout"
    FAILED = "failed"
    """Numerical trouble, or "infeasible", which a network's model never is."""


@dataclass(frozen=True, eq=False)
class Answer:
    """A solver's result, after its numbers were made safe."""

    bound: float
    """A lower bound of the minimum that counts: -inf if there is none."""
    objective: float
    """That of the best point, as the solver says; inf if there is none."""
    point: np.ndarray | None
    status: Status


@dataclass(frozen=True, eq=False)
class Raw:
    """A solver's own result. An LP has `dual`, one number per row; a MILP has `bound`."""

    status: Status
    bound: float = -math.inf
    dual: np.ndarray | None = None
    objective: float = math.inf
    point: np.ndarray | None = None


class Solver(ABC):
    """One solver, one thread. A solver without state: models may be solved in any order."""

    name: ClassVar[str]

    module: ClassVar[str] = ""
    """The package that it needs, where that is not installed with maar: the extra of its name."""

    @classmethod
    def require(cls) -> None:
        """Raise if its package is not there."""
        if cls.module and find_spec(cls.module) is None:
            raise UsageError(
                f"solver {cls.name!r} needs {cls.module}: pip install 'maar[{cls.name}]'"
            )

    def solve(
        self,
        model: Model,
        seconds: float = math.inf,
        stop_above: float = math.inf,
        stop_below: float = -math.inf,
    ) -> Answer:
        """Minimise until solved, the bound is above or a point below the stops, or time is up."""
        if seconds <= 0:
            return Answer(-math.inf, math.inf, None, Status.TIMEOUT)
        if not model.is_finite:  # of a network that overflowed
            return Answer(-math.inf, math.inf, None, Status.FAILED)
        if not len(model.cost):  # a constant, which HiGHS has no word for
            return Answer(model.constant, model.constant, np.zeros(0), Status.OPTIMAL)
        if model.is_lp:
            raw = self.linear(model, seconds)
            bound = -math.inf if raw.dual is None else safe_bound(model, raw.dual)
        else:
            raw, bound = self._scaled(model, seconds, stop_above, stop_below)
        if raw.status is Status.FAILED or not math.isfinite(bound):
            bound = -math.inf
        return Answer(bound, raw.objective, raw.point, raw.status)

    def _scaled(
        self, model: Model, seconds: float, stop_above: float, stop_below: float
    ) -> tuple[Raw, float]:
        """The answer to a mixed-integer model, and its bound less what tolerances can make."""
        with np.errstate(over="ignore", invalid="ignore"):
            ours = scaled(model)
        if not ours.model.is_finite or abs(ours.model.constant) > HUGE:
            return Raw(Status.FAILED), -math.inf
        lost = tolerated(ours.model)
        stops = stop_above / ours.unit + lost, stop_below / ours.unit
        raw = self.integer(ours.model, seconds, *stops)
        bound = ours.unit * (raw.bound - lost)
        objective, point = ours.unit * raw.objective, ours.point(raw.point)
        return replace(raw, objective=objective, point=point), bound

    @abstractmethod
    def linear(self, model: Model, seconds: float) -> Raw:
        """Solve a linear program; the sign of `dual` is that of cost = A' dual + reduced cost."""

    @abstractmethod
    def integer(self, model: Model, seconds: float, stop_above: float, stop_below: float) -> Raw:
        """Solve a mixed-integer program, to tolerances of `TOLERANCE`."""


def tolerated(model: Model) -> float:
    """The most by which a MILP's bound can be too high within the solver's tolerances.

    A node's bound is a dual vector's, whose reduced costs may have the wrong sign by TOLERANCE:
    each column then adds TOLERANCE times its width. The rest is for the rounding of the sums. This
    is true of a model in the right units only (`scaling.py`).
    """
    size = np.abs(model.cost) @ np.maximum(np.abs(model.lb), np.abs(model.ub))
    return float(TOLERANCE * ((model.ub - model.lb).sum() + size + abs(model.constant)))
