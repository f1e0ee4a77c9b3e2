"""Against the true minimum: all ReLU patterns of small networks, one linear program each.

For a fixed pattern of active ReLUs a network is affine, and the points with that pattern are a
polytope: scipy's linprog (HiGHS) minimises each margin there. Patterns are grown ReLU by ReLU and
left alone where no point has them. None of maar's rules are used: affine layers are read off by
applying torch's own modules to unit vectors.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from bound_checks import How, ask, bounds_of
from bound_domains import DOMAINS
from random_nets import make_case
from scipy.optimize import linprog
from torch import Tensor, nn

from maar.domains.bound import margins
from maar.domains.crown import Crown
from maar.domains.zonotope import Zonotope
from maar.networks.layers import Normalize, Residual


class Undecided(Exception):
    """Carries the affine input of the first ReLU whose sign the pattern does not say."""


def affine_output(net: nn.Module, pattern: list[bool], shape: torch.Size) -> tuple[Tensor, list]:
    """The network as [d+1, outputs] (linear part, then constant) and the sign conditions on x."""
    size = shape.numel()
    left = list(pattern)
    conditions: list[tuple[np.ndarray, bool]] = []

    def run(module: nn.Module, value: Tensor) -> Tensor:
        if isinstance(module, nn.Sequential):
            for layer in module:
                value = run(layer, value)
            return value
        if isinstance(module, Residual):
            return run(module.body, value) + run(module.shortcut, value)
        if isinstance(module, nn.ReLU):
            flat = value.flatten(1).clone()
            for j in range(flat.shape[1]):
                if not left:
                    raise Undecided(flat[:, j].numpy())
                active = left.pop(0)
                conditions.append((flat[:, j].clone().numpy(), active))
                if not active:
                    flat[:, j] = 0
            return flat.view_as(value)
        constant = module(value[-1:])
        return torch.cat([module(value[:-1] + value[-1:]) - constant, constant])

    basis = torch.eye(size + 1, size, dtype=torch.float64).view(size + 1, *shape)
    with torch.no_grad():
        return run(net, basis), conditions


def true_minima(net: nn.Module, lb: Tensor, ub: Tensor, C: Tensor) -> np.ndarray:
    """The least value of each row of C f(x) over one box."""
    box = np.stack([lb.flatten().numpy(), ub.flatten().numpy()], 1)
    least = np.full(len(C), np.inf)

    def minimum(row: np.ndarray, conditions: list) -> float | None:
        """min row . (x, 1) where the ReLUs have these signs; None if no such x."""
        if not conditions:
            best = np.where(row[:-1] > 0, box[:, 0], box[:, 1])
            return float(row[:-1] @ best + row[-1])
        # a . x + b >= 0 where active, <= 0 where not; the shared border belongs to both
        A = np.stack([-a[:-1] if on else a[:-1] for a, on in conditions])
        b = np.array([a[-1] if on else -a[-1] for a, on in conditions])
        found = linprog(row[:-1], A, b, bounds=box, method="highs-ds")
        return None if found.status == 2 else float(found.fun + row[-1])

    def grow(pattern: list[bool], conditions: list) -> None:
        try:
            out, _ = affine_output(net, pattern, lb.shape)
        except Undecided as stop:
            (row,) = stop.args
            if (low := minimum(row, conditions)) is None:
                return
            high = -(minimum(-row, conditions) or 0.0)
            if high >= 0:
                grow([*pattern, True], [*conditions, (row, True)])
            if low <= 0:
                grow([*pattern, False], [*conditions, (row, False)])
            return
        for k, row in enumerate((out @ C.T).T.numpy()):
            value = minimum(row, conditions)
            if value is not None:
                least[k] = min(least[k], value)

    grow([], [])
    return least


def fully_connected() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))


def convolutional() -> nn.Sequential:
    return nn.Sequential(
        Normalize([0.4], [0.3]),
        nn.Conv2d(1, 2, 2, 1, 1, dilation=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8, 4),
        nn.BatchNorm1d(4),
        nn.ReLU(),
        nn.Linear(4, 2),
    )


def residual() -> nn.Sequential:
    body = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 4))
    shortcut = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), Residual(body, shortcut), nn.Linear(4, 3))


# name: (network, input shape, radius)
NETS = {
    "fully connected": (fully_connected, (3,), 0.3),
    "fully connected, wide box": (fully_connected, (3,), 5.0),
    "convolutional": (convolutional, (1, 2, 2), 0.2),
    "residual": (residual, (2,), 0.5),
}


@functools.cache
def with_truth(name: str):
    """The case and the true minimum of each margin."""
    make, shape, radius = NETS[name]
    case = make_case(make(), shape, (radius,), seed=3)
    relus = sum(lb.numel() for lb, _ in ask(DOMAINS[0], case, How()).pre)
    assert 11 <= relus <= 12
    C = margins(case.y, case.classes, torch.float64)
    truth = true_minima(case.net_in(torch.float64), case.lb[0].double(), case.ub[0].double(), C[0])
    return case, torch.from_numpy(truth)


@pytest.mark.parametrize("name", NETS)
def test_the_truth_is_true(name):
    """Enumeration against plain sampling: no point below it, and points close to it."""
    case, truth = with_truth(name)
    generator = case.generator()
    e = torch.rand(20000, *case.shape, generator=generator)
    e = torch.cat([e, e.round()])
    with torch.no_grad():
        z = case.net_in(torch.float64)(torch.lerp(case.lb, case.ub, e).double())
    least = (margins(case.y, case.classes, torch.float64)[0] @ z.T).amin(1)
    assert bool((least >= truth - 1e-6).all())
    assert bool((least <= truth + 0.05 * (1 + truth.abs())).all())


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_no_bound_is_above_the_true_minimum(domain, name):
    case, truth = with_truth(name)
    for rounding in (False, True):
        for compiled in (False, True):
            how = How(torch.float64, rounding, compiled)
            lb = ask(domain, case, how).lb[0]
            assert bool((lb <= truth + 1e-9).all()), f"{how}: {lb} above {truth}"


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("bound", [Crown(), Zonotope()], ids=lambda bound: bound.name)
def test_a_stable_network_is_bounded_exactly(bound, name):
    make, shape, _ = NETS[name]
    case = make_case(make(), shape, (1e-3,), seed=3)
    found = bounds_of(bound, case)
    assert not any(bool(((lb < 0) & (ub > 0)).any()) for lb, ub in found.pre)
    C = margins(case.y, case.classes, torch.float64)
    net = case.net_in(torch.float64)
    truth = true_minima(net, case.lb[0].double(), case.ub[0].double(), C[0])
    torch.testing.assert_close(found.lb[0], torch.from_numpy(truth), rtol=0, atol=1e-12)
