"""Solvers of linear and mixed-integer programs behind one small interface.

    Model      columns with bounds, costs and integrality; rows with two sides; sparse arrays
    Solver     `solve(model, seconds, stop_above, stop_below)` to an `Answer`; one file each
    Answer     a lower bound that counts (docs/solvers.md says why), the best point, a status

Importing this package loads no solver.
"""

from __future__ import annotations

from maar.core.registry import Registry

SOLVERS = Registry(
    "solver",
    {
        "highs": "maar.certification.solvers.highs:Highs",
        "scip": "maar.certification.solvers.scip:Scip",
        "gurobi": "maar.certification.solvers.gurobi:Gurobi",
    },
)

# Measured by benchmarks/solvers.py; docs/solvers.md has the table.
DEFAULT, DEFAULT_LP = "scip", "highs"
