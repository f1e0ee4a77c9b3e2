"""HiGHS (highspy): the fastest of the free solvers on linear programs."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from maar.certification.solvers.model import Model
from maar.certification.solvers.solver import TOLERANCE, Raw, Solver, Status


class Highs(Solver):
    """The whole model is handed over as arrays."""

    name: ClassVar[str] = "highs"

    def linear(self, model: Model, seconds: float) -> Raw:
        import highspy

        highs = _highs(model, seconds)
        highs.run()
        if highs.getModelStatus() == highspy.HighsModelStatus.kTimeLimit:
            return Raw(Status.TIMEOUT, dual=_array(highs.getSolution().row_dual, len(model.A)))
        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return Raw(Status.FAILED)
        solution = highs.getSolution()
        return Raw(
            Status.OPTIMAL,
            dual=_array(solution.row_dual, len(model.A)),
            objective=highs.getInfo().objective_function_value,
            point=_array(solution.col_value, len(model.cost)),
        )

    def integer(self, model: Model, seconds: float, stop_above: float, stop_below: float) -> Raw:
        import highspy

        highs = _highs(model, seconds)
        whole = np.flatnonzero(model.integral).astype(np.int32)
        kind = np.full(len(whole), highspy.HighsVarType.kInteger.value, np.uint8)
        highs.changeColsIntegrality(len(whole), whole, kind)
        highs.setOptionValue("mip_feasibility_tolerance", TOLERANCE)
        for gap in ("mip_rel_gap", "mip_abs_gap"):
            highs.setOptionValue(gap, 0.0)
        if math.isfinite(stop_below):
            highs.setOptionValue("objective_target", stop_below)
        _stop_above(highs, stop_above)
        highs.run()
        # By name: versions have different ones.
        reached = {
            "kOptimal": Status.OPTIMAL,
            "kTimeLimit": Status.TIMEOUT,
            "kObjectiveTarget": Status.BROKEN,
            "kInterrupt": Status.PROVED,
            "kHighsInterrupt": Status.PROVED,
        }
        status = reached.get(highs.getModelStatus().name, Status.FAILED)
        info = highs.getInfo()
        if not math.isfinite(info.objective_function_value):
            return Raw(status, bound=info.mip_dual_bound)
        return Raw(
            status,
            bound=info.mip_dual_bound,
            objective=info.objective_function_value,
            point=_array(highs.getSolution().col_value, len(model.cost)),
        )


def _highs(model: Model, seconds: float) -> Any:
    import highspy

    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    for side in ("primal", "dual"):
        highs.setOptionValue(f"{side}_feasibility_tolerance", TOLERANCE)
    if math.isfinite(seconds):
        highs.setOptionValue("time_limit", seconds)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(model.cost), len(model.A)
    lp.col_cost_, lp.offset_ = model.cost, model.constant
    lp.col_lower_, lp.col_upper_ = model.lb, model.ub
    lp.row_lower_, lp.row_upper_ = model.row_lb, model.row_ub
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = model.A.start.astype(np.int32)
    lp.a_matrix_.index_, lp.a_matrix_.value_ = model.A.index, model.A.value
    highs.passModel(lp)
    return highs


def _stop_above(highs: Any, bound: float) -> None:
    """Interrupt as soon as the dual bound is above; HiGHS has no option for that."""
    if not math.isfinite(bound):
        return

    def look(event: Any) -> None:
        event.interrupt(event.data_out.mip_dual_bound > bound)

    highs.cbMipInterrupt += look


def _array(values: Any, size: int) -> np.ndarray | None:
    found = np.asarray(values, np.float64)
    return found if len(found) == size else None
