"""What is cut off a box meets no condition: against many points, in exact arithmetic."""

from fractions import Fraction

import pytest
import torch
from torch import nn

from maar.certification.properties import contraction
from maar.certification.properties.contraction import contracted
from maar.certification.properties.exact import exactly
from maar.domains.forward import Forward
from maar.domains.graph import trace


def problem(seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    graph = trace(net.double().requires_grad_(False), (2,))
    lb = -torch.rand(4, 2, dtype=torch.float64)
    ub = torch.rand(4, 2, dtype=torch.float64)
    C = torch.randn(4, 2, 2, dtype=torch.float64)
    middle = net((lb + ub) / 2)
    b = (C @ middle[..., None])[..., 0] + 0.05 * torch.randn(4, 2, dtype=torch.float64)
    return graph, lb, ub, C, b


def check(seed):
    """How much was cut off; every point that meets the condition must still be inside."""
    graph, lb, ub, C, b = problem(seed)
    _, pre = Forward(graph)(lb, ub)
    low, high, best = contracted(graph, lb, ub, C, b, pre)
    assert bool(((low >= lb) & (high <= ub) & (low <= high)).all())
    line = torch.linspace(0, 1, 15, dtype=torch.float64)
    for n in range(len(lb)):
        for s, t in torch.cartesian_prod(line, line).tolist():
            x = [_between(lb[n, i], ub[n, i], part) for i, part in enumerate((s, t))]
            y = exactly(graph, x)
            rows = [
                sum(Fraction(a) * v for a, v in zip(row, y, strict=True)) - Fraction(right)
                for row, right in zip(C[n].tolist(), b[n].tolist(), strict=True)
            ]
            for row, bound in zip(rows, best[n].tolist(), strict=True):
                assert row >= Fraction(bound)
            if max(rows) <= 0:
                for i, value in enumerate(x):
                    assert Fraction(float(low[n, i])) <= value <= Fraction(float(high[n, i]))
    return float(((ub - lb) - (high - low)).sum())


def _between(low, high, part):
    low, high = Fraction(float(low)), Fraction(float(high))
    return low + Fraction(part) * (high - low)


def test_nothing_that_meets_a_condition_is_cut_off():
    assert sum(check(seed) for seed in range(6)) > 0.1


@pytest.mark.parametrize("bug", ["distance", "side"])
def test_planted_bugs_are_caught(bug, monkeypatch):
    outward = contraction._outward
    bugs = {
        "distance": lambda end, step, side: outward(end, 0.7 * step, side),
        "side": lambda end, step, side: outward(end, step - 0.2 * side, side),
    }
    monkeypatch.setattr(contraction, "_outward", bugs[bug])
    assert sum(is_caught(seed) for seed in range(12))


def is_caught(seed):
    try:
        check(seed)
    except AssertionError:
        return True
    return False
