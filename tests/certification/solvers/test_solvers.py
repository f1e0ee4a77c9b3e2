"""Each solver on programs whose minimum is known; bounds that hold whatever a solver says."""

import importlib.util
import math
import os
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from maar.certification.solvers import DEFAULT, DEFAULT_LP, SOLVERS
from maar.certification.solvers.dual import safe_bound
from maar.certification.solvers.model import Csr, Model
from maar.certification.solvers.scip import muted
from maar.certification.solvers.solver import Raw, Solver, Status
from maar.core.errors import UsageError

HAS_GUROBI = importlib.util.find_spec("gurobipy") is not None
FREE = [name for name in SOLVERS if name != "gurobi" or HAS_GUROBI]


def program(seed: int, whole: bool) -> tuple[Model, float]:
    """A random feasible program and its minimum, by scipy."""
    chance = np.random.default_rng(seed)
    columns, rows = chance.integers(3, 12), chance.integers(2, 9)
    A = chance.normal(size=(rows, columns)) * (chance.random((rows, columns)) < 0.6)
    lb = chance.uniform(-2, 0, columns)
    ub = lb + chance.uniform(0.5, 3, columns)
    integral = (chance.random(columns) < 0.4) & whole
    integral[0] = whole
    lb, ub = np.where(integral, np.floor(lb), lb), np.where(integral, np.ceil(ub), ub)
    middle = (lb + ub) / 2
    value = A @ np.where(integral, np.round(middle), middle)
    row_lb = np.where(chance.random(rows) < 0.6, value - chance.uniform(0, 0.5, rows), -np.inf)
    row_ub = np.where(chance.random(rows) < 0.6, value + chance.uniform(0, 0.5, rows), np.inf)
    cost = chance.normal(size=columns)
    found = milp(
        cost,
        constraints=LinearConstraint(A, row_lb, row_ub),
        bounds=Bounds(lb, ub),
        integrality=integral.astype(int),
        options={"mip_rel_gap": 0},
    )
    return Model(cost, 0.7, lb, ub, integral, Csr.of(A), row_lb, row_ub), found.fun + 0.7


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("whole", [False, True])
def test_the_minimum_from_below(name, whole):
    for seed in range(15):
        model, truth = program(seed, whole)
        answer = SOLVERS[name]().solve(model, 20.0)
        assert answer.status is Status.OPTIMAL
        assert truth - 1e-5 < answer.bound <= truth + 1e-12
        assert answer.objective == pytest.approx(truth, abs=1e-6)
        assert model.cost @ answer.point + model.constant == pytest.approx(truth, abs=1e-6)


@pytest.mark.parametrize("name", FREE)
def test_stops(name):
    """Sooner or at the optimum, but with the bound or the point that was asked for."""
    for seed in range(10):
        model, truth = program(seed, whole=True)
        assert SOLVERS[name]().solve(model, 20.0, stop_above=truth - 0.5).bound > truth - 0.5
        below = SOLVERS[name]().solve(model, 20.0, stop_below=truth + 0.5)
        assert below.objective <= truth + 0.5
        assert below.bound <= truth


@pytest.mark.parametrize("name", FREE)
def test_what_proves_nothing(name):
    model, _ = program(3, whole=True)
    solver = SOLVERS[name]()
    late = solver.solve(model, 0.0)
    assert (late.status, late.bound) == (Status.TIMEOUT, -math.inf)
    for program_ in (model, model.relaxed()):
        nowhere = replace(program_, row_lb=np.full(len(model.A), 1e3), row_ub=program_.row_ub + 1e3)
        answer = solver.solve(nowhere, 20.0)
        # (of an infeasible LP every bound is true; of a network's MILP the word means a mistake)
        assert answer.status is Status.FAILED
        assert answer.bound == -math.inf
    for hole in (np.nan, np.inf):
        broken = replace(model, cost=np.where(np.arange(len(model.cost)) == 1, hole, model.cost))
        assert solver.solve(broken, 20.0).status is Status.FAILED
    broken = replace(model, row_lb=np.full(len(model.A), np.nan))
    assert solver.solve(broken, 20.0).bound == -math.inf


class Liar(Solver):
    """Its dual vector is any; its bound of a MILP is a little too high."""

    name = "liar"

    def __init__(self, dual):
        self.dual = dual

    def linear(self, model, seconds):
        return Raw(Status.OPTIMAL, bound=1e9, dual=self.dual, objective=1e9)

    def integer(self, model, seconds, stop_above, stop_below):
        return Raw(Status.OPTIMAL, bound=model.constant + 1e-9 * (model.ub - model.lb).sum())


def test_no_dual_vector_proves_too_much():
    chance = np.random.default_rng(0)
    for seed in range(40):
        model, truth = program(seed, whole=False)
        for scale in (0.0, 0.1, 1.0, 1e6):
            y = scale * chance.normal(size=len(model.A))
            assert Liar(y).solve(model).bound <= truth + 1e-12
        model, _ = program(seed, whole=True)
        start = np.where(model.integral, 0.0, model.lb)
        assert Liar(None).solve(model).bound <= model.constant + model.cost @ start


def test_rounding_is_taken_off_a_dual_bound():
    """1e16 + 1 - 1e16: the terms cancel to 1, in floating point to 0 or 2."""
    A = Csr.of(np.array([[1.0], [-1.0]]))
    row_lb = np.array([1e16, -1e16])
    model = Model(
        np.array([0.0]),
        1.0,
        np.array([-1.0]),
        np.array([1.0]),
        np.array([False]),
        A,
        row_lb,
        np.full(2, np.inf),
    )
    assert safe_bound(model, np.array([1.0, 1.0])) < 1.0
    assert safe_bound(model, np.zeros(2)) == pytest.approx(1.0)


def test_sparse_matrices():
    chance = np.random.default_rng(1)
    dense = chance.normal(size=(5, 7)) * (chance.random((5, 7)) < 0.4)
    y = chance.normal(size=5)
    np.testing.assert_allclose(Csr.of(dense).transposed_times(y), dense.T @ y)
    np.testing.assert_allclose(
        abs(Csr.of(dense)).transposed_times(np.abs(y)), np.abs(dense).T @ np.abs(y)
    )
    both = Csr.stacked([Csr.of(dense[:2]), Csr.of(dense[2:])])
    np.testing.assert_allclose(both.transposed_times(y), dense.T @ y)
    pairs = Csr.diagonals(
        (np.array([0, 3]), np.array([2.0, 4.0])),
        (np.array([1, 2]), np.array([-1.0, 5.0])),
        columns=4,
    )
    np.testing.assert_allclose(pairs.transposed_times(np.array([1.0, 10.0])), [2, -1, 50, 40])


@pytest.mark.skipif(HAS_GUROBI, reason="gurobipy is installed")
def test_a_solver_that_is_not_installed():
    with pytest.raises(UsageError, match=r"pip install 'maar\[gurobi\]'"):
        SOLVERS["gurobi"]().solve(program(0, whole=False)[0])


def test_names():
    assert DEFAULT in SOLVERS
    assert DEFAULT_LP in SOLVERS
    for name in FREE:
        assert SOLVERS[name].name == name
    with pytest.raises(UsageError, match="scip"):
        SOLVERS["sicp"]


def test_soplex_is_not_heard(capfd):
    with muted():
        os.write(2, b"Cannot set optimality tolerance")
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"
