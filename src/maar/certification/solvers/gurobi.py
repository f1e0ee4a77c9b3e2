"""Gurobi (gurobipy, the extra `maar[gurobi]`): commercial, the strongest, needs a licence.

Without one its wheel solves models of up to 2,000 rows and 2,000 columns.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from maar.certification.solvers.model import Model
from maar.certification.solvers.solver import TOLERANCE, Raw, Solver, Status
from maar.core.errors import RunError, UsageError


class Gurobi(Solver):
    """The whole model is handed over as arrays."""

    name: ClassVar[str] = "gurobi"
    module: ClassVar[str] = "gurobipy"

    def linear(self, model: Model, seconds: float) -> Raw:
        program, x, sides = _program(model, seconds)
        status = _optimise(program)
        if status is not Status.OPTIMAL:
            return Raw(status)
        dual = np.zeros(len(model.A))
        for rows, constraints in sides:
            dual[rows] += constraints.Pi
        return Raw(status, dual=dual, objective=program.ObjVal, point=x.X)

    def integer(self, model: Model, seconds: float, stop_above: float, stop_below: float) -> Raw:
        program, x, _ = _program(model, seconds)
        program.Params.MIPGap = program.Params.MIPGapAbs = 0.0
        program.Params.IntFeasTol = TOLERANCE
        if math.isfinite(stop_above):
            program.Params.BestBdStop = stop_above
        if math.isfinite(stop_below):
            program.Params.BestObjStop = stop_below
        status = _optimise(program)
        if not program.SolCount:
            return Raw(status, bound=program.ObjBound)
        if status is Status.PROVED and program.ObjVal <= stop_below:
            status = Status.BROKEN  # Gurobi has one word for both stops
        return Raw(status, bound=program.ObjBound, objective=program.ObjVal, point=x.X)


def _program(model: Model, seconds: float) -> tuple[Any, Any, list[tuple[np.ndarray, Any]]]:
    """The program, its columns, and the rows of each side with the constraints they became."""
    try:
        import gurobipy as gp
        from scipy.sparse import csr_matrix
    except ImportError as error:
        raise UsageError(f"solver 'gurobi': {error}: pip install 'maar[gurobi]'") from None
    try:
        environment = gp.Env(params={"OutputFlag": 0})
    except gp.GurobiError as error:
        raise RunError(f"gurobi: {error}") from None
    program = gp.Model(env=environment)
    program.Params.Threads = 1
    # 1e-9 is the least that Gurobi takes.
    program.Params.FeasibilityTol = program.Params.OptimalityTol = TOLERANCE
    if math.isfinite(seconds):
        program.Params.TimeLimit = seconds
    kinds = np.where(model.integral, gp.GRB.INTEGER, gp.GRB.CONTINUOUS)
    x = program.addMVar(len(model.cost), lb=model.lb, ub=model.ub, obj=model.cost, vtype=kinds)
    program.ObjCon = model.constant
    A = csr_matrix((model.A.value, model.A.index, model.A.start), (len(model.A), model.A.columns))
    sides = []
    for sign, side in ((">", model.row_lb), ("<", model.row_ub)):
        rows = np.flatnonzero(np.isfinite(side))
        sides.append((rows, program.addMConstr(A[rows], x, sign, side[rows])))
    return program, x, sides


def _optimise(program: Any) -> Status:
    import gurobipy as gp

    try:
        program.optimize()
    except gp.GurobiError as error:  # such as a model too large for the licence
        raise RunError(f"gurobi: {error}") from None
    reached = {
        gp.GRB.OPTIMAL: Status.OPTIMAL,
        gp.GRB.TIME_LIMIT: Status.TIMEOUT,
        gp.GRB.USER_OBJ_LIMIT: Status.PROVED,
    }
    return reached.get(program.Status, Status.FAILED)
