"""Properties without files, and tiny networks of which the truth is known by looking everywhere."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from maar.core.spec import Case, Condition, Property


def _condition(A, b):
    A = np.array(A, dtype=np.float64)
    b = np.broadcast_to(np.array(b, dtype=np.float64), len(A)).copy()
    return Condition(A, b, b)


@pytest.fixture
def strict():
    """`strict(property)`: the same with < in every row."""

    def make(prop):
        cases = []
        for case in prop.cases:
            conditions = (replace(c, strict=np.ones(len(c.b), bool)) for c in case.conditions)
            cases.append(replace(case, conditions=tuple(conditions)))
        return replace(prop, cases=tuple(cases))

    return make


def _case(lb, ub, *conditions):
    lb, ub = np.array(lb, dtype=np.float64), np.array(ub, dtype=np.float64)
    exact = [tuple(Fraction(v) for v in side.tolist()) for side in (lb, ub)]
    return Case(lb, ub, *exact, tuple(_condition(*condition) for condition in conditions))


@pytest.fixture
def case():
    """`case(lb, ub, (A, b), ...)`: a box and conditions A y <= b."""
    return _case


@pytest.fixture
def prop():
    """`prop(case, ...)`: their union."""

    def make(*cases):
        outputs = cases[0].conditions[0].A.shape[1]
        return Property(len(cases[0].lb), outputs, cases)

    return make


@pytest.fixture
def identity():
    """y = x."""
    linear = nn.Linear(2, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(2))
        linear.bias.zero_()
    return nn.Sequential(linear).eval()


@pytest.fixture
def nought():
    """y_0 = |x_0| - |x_0| = 0, y_1 = x_0: each ReLU's relaxation knows nothing of the others."""
    first, last = nn.Linear(2, 4, bias=False), nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0], [-1, 0], [1, 0], [-1, 0]]))
        last.weight.copy_(torch.tensor([[1.0, 1, -1, -1], [1, -1, 0, 0]]))
    return nn.Sequential(first, nn.ReLU(), last).eval()
