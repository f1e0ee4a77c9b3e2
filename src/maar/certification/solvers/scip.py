"""SCIP (pyscipopt): the stronger of the free solvers where there is much to branch on."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from maar.certification.solvers.model import Model
from maar.certification.solvers.solver import TOLERANCE, Raw, Solver, Status


class Scip(Solver):
    """Rows are handed over one at a time, each as a table of its entries: measured, the fastest."""

    name: ClassVar[str] = "scip"

    def linear(self, model: Model, seconds: float) -> Raw:
        """By SoPlex alone, SCIP's own solver of linear programs; it has no time limit."""
        from pyscipopt import LP

        lp = LP()
        columns = len(model.cost)
        lp.addCols([[]] * columns, model.cost.tolist(), model.lb.tolist(), model.ub.tolist())
        lp.addRows(
            [list(row) for row in _rows(model, range(columns))],
            _sides(model.row_lb, lp.infinity()),
            _sides(model.row_ub, lp.infinity()),
        )
        lp.solve()
        if not lp.isOptimal():
            return Raw(Status.FAILED)
        return Raw(
            Status.OPTIMAL,
            dual=np.array(lp.getDual()),
            objective=lp.getObjVal() + model.constant,
            point=np.array(lp.getPrimal()),
        )

    def integer(self, model: Model, seconds: float, stop_above: float, stop_below: float) -> Raw:
        from pyscipopt import Model as Program
        from pyscipopt.scip import Expr, ExprCons, Term

        scip = Program()
        scip.hideOutput()
        scip.setParams(
            {
                "numerics/feastol": TOLERANCE,
                "numerics/dualfeastol": TOLERANCE,
                "limits/gap": 0.0,
                "limits/absgap": 0.0,
                "misc/catchctrlc": False,
                "timing/clocktype": 2,  # the clock on the wall
            }
        )
        if math.isfinite(seconds):
            scip.setParam("limits/time", seconds)
        if math.isfinite(stop_above):
            scip.setParam("limits/dual", stop_above)
        if math.isfinite(stop_below):
            scip.setParam("limits/primal", stop_below)
        kinds = np.where(model.integral, "I", "C").tolist()
        bounds = zip(kinds, model.lb.tolist(), model.ub.tolist(), strict=True)
        columns = [scip.addVar(vtype=kind, lb=lb, ub=ub) for kind, lb, ub in bounds]
        terms = np.empty(len(columns), object)
        terms[:] = [Term(column) for column in columns]
        sides = zip(_sides(model.row_lb, None), _sides(model.row_ub, None), strict=True)
        for row, (lb, ub) in zip(_rows(model, terms), sides, strict=True):
            if lb is not None or ub is not None:
                scip.addCons(ExprCons(Expr(dict(row)), lb, ub))
        some = np.flatnonzero(model.cost)
        cost = dict(zip(terms[some].tolist(), model.cost[some].tolist(), strict=True))
        scip.setObjective(Expr(cost))
        scip.addObjoffset(model.constant)
        with muted():
            scip.optimize()
        reached = {
            "optimal": Status.OPTIMAL,
            "timelimit": Status.TIMEOUT,
            "duallimit": Status.PROVED,
            "primallimit": Status.BROKEN,
        }
        status = reached.get(scip.getStatus(), Status.FAILED)
        if not scip.getNSols():
            return Raw(status, bound=scip.getDualbound())
        best = scip.getBestSol()
        assert best is not None
        return Raw(
            status,
            bound=scip.getDualbound(),
            objective=scip.getObjVal(),
            point=np.array([best[column] for column in columns]),
        )


def _rows(model: Model, names: Any) -> Any:
    """The entries of each row as pairs (name of the column, value)."""
    names = np.asarray(names, object)[model.A.index].tolist()
    values, start = model.A.value.tolist(), model.A.start.tolist()
    for begin, end in itertools.pairwise(start):
        yield zip(names[begin:end], values[begin:end], strict=True)


def _sides(values: np.ndarray, missing: float | None) -> list[Any]:
    """A row's sides, with what this interface has for infinity."""
    found = values.tolist()
    for i in np.flatnonzero(np.isinf(values)).tolist():
        found[i] = missing if missing is None else math.copysign(missing, found[i])
    return found


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Let nothing through to stderr: SoPlex complains there of tolerances that SCIP asks for."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
