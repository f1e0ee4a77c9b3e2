"""Models that solvers' tolerances do not fit: a bound must hold all the same."""

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from maar.certification.solvers import SOLVERS
from maar.certification.solvers.model import Csr, Model
from maar.certification.solvers.scaling import scaled

FREE = ("highs", "scip")


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("width", [1e-12, 1e-9, 1e-6])
def test_a_narrow_column_with_a_large_cost(name, width):
    """min 2 - 2/width x: exactly 0, and 2 for a solver that fixes x to 0."""
    model = Model(
        np.array([-2 / width, 1.0]),
        2.0,
        np.zeros(2),
        np.array([width, 1.0]),
        np.array([False, True]),
        Csr.of(np.array([[1.0, 1.0]])),
        np.array([-1.0]),
        np.array([3.0]),
    )
    answer = SOLVERS[name]().solve(model, 20.0)
    assert -1e-6 < answer.bound <= 0
    assert model.lb[0] <= answer.point[0] <= model.ub[0] * (1 + 1e-9)


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("power", [3, 6, 9])
def test_other_units_have_the_same_minimum(name, power):
    for seed in range(8):
        chance = np.random.default_rng(seed)
        columns, rows = 8, 5
        A = chance.normal(size=(rows, columns))
        integral = np.arange(columns) < 4
        lb, ub = np.where(integral, 0.0, -1.0), np.ones(columns)
        inside = A @ np.where(integral, 1.0, 0.1)
        row_lb, row_ub = inside - 0.3, np.where(np.arange(rows) < 3, inside + 0.3, np.inf)
        cost = chance.normal(size=columns)
        truth = milp(
            cost,
            constraints=LinearConstraint(A, row_lb, row_ub),
            bounds=Bounds(lb, ub),
            integrality=integral.astype(int),
            options={"mip_rel_gap": 0},
        ).fun
        by_column = np.where(integral, 1.0, 10.0 ** chance.uniform(-power, power, columns))
        by_row, by_cost = 10.0 ** chance.uniform(-power, power, rows), 10.0**power
        model = Model(
            cost / by_column * by_cost,
            0.0,
            lb * by_column,
            ub * by_column,
            integral,
            Csr.of(A / by_column * by_row[:, None]),
            row_lb * by_row,
            row_ub * by_row,
        )
        answer = SOLVERS[name]().solve(model, 20.0)
        # (scipy's own tolerance is 1e-6 of a row)
        assert truth - 1e-5 < answer.bound / by_cost <= truth + 1e-5


def test_every_point_is_kept_and_costs_no_more():
    chance = np.random.default_rng(0)
    for _ in range(50):
        A = chance.normal(size=(6, 5)) * 10.0 ** chance.uniform(-12, 6, (6, 5))
        lb = chance.normal(size=5) * 10.0 ** chance.uniform(-9, 3, 5)
        ub = lb + 10.0 ** chance.uniform(-13, 3, 5)
        integral = np.array([False] * 4 + [True])
        lb[4], ub[4] = 0.0, 1.0
        x = chance.uniform(lb, ub)
        x[0], x[4] = ub[0], 1.0
        value = A @ x
        cost = chance.normal(size=5) * 10.0 ** chance.uniform(-9, 6, 5)
        model = Model(cost, 0.5, lb, ub, integral, Csr.of(A), value, value)
        ours = scaled(model)
        t = (x - ours.offset) / ours.width
        dense = np.zeros((6, 5))
        dense[ours.model.A.row_of_each(), ours.model.A.index] = ours.model.A.value
        assert ((t >= ours.model.lb) & (t <= ours.model.ub)).all()
        # ... with what solvers are asked for ten times to spare
        assert (dense @ t >= ours.model.row_lb + 0.99e-8).all()
        assert (dense @ t <= ours.model.row_ub - 0.99e-8).all()
        assert np.abs(dense).max() <= 1
        assert ours.unit * (ours.model.cost @ t + ours.model.constant) <= cost @ x + 0.5
        np.testing.assert_allclose(ours.point(t), x, rtol=1e-9)
