"""Verdicts against the truth: unsat is never contradicted, sat comes with a true point."""

import math
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from maar.certification.properties import STEPS
from maar.certification.properties.decide import decide
from maar.core.errors import RunError, UsageError
from maar.core.spec import Case, Condition, Property
from maar.networks.layers import Normalize, Residual


def is_true(net, shape, prop, witness):
    """By Fractions alone: the printed point is in a box, and its float32 outputs are unsafe."""
    x = [Fraction(text) for text in witness.x]
    point = torch.tensor([float(text) for text in witness.x]).view(1, *shape)
    y = net(point)[0].tolist()
    assert list(witness.y) == y
    for case in prop.cases:
        if all(a <= v <= b for a, v, b in zip(case.low, x, case.high, strict=True)):
            for condition in case.conditions:
                exact = [Fraction(value) for value in y]
                left = [
                    sum(Fraction(a) * v for a, v in zip(row, exact, strict=True))
                    for row in condition.A.tolist()
                ]
                if all(a <= b for a, b in zip(left, condition.b.tolist(), strict=True)):
                    return True
    return False


# Known by hand


@pytest.mark.parametrize(
    ("bound", "verdict"), [(-0.01, "unsat"), (0.01, "sat"), (0.99, "sat"), (2.0, "sat")]
)
def test_one_row(identity, case, prop, bound, verdict):
    question = prop(case([0, 0], [1, 1], ([[1, 0]], bound)))  # is y_0 <= bound somewhere?
    found = decide(identity, (2,), question, timeout=20)
    assert found.verdict == verdict
    if verdict == "sat":
        assert is_true(identity, (2,), question, found.witness)


def test_a_tie_counts_as_the_condition_says(identity, case, prop, strict):
    question = prop(case([0, 0], [1, 1], ([[1, 0]], 0.0)))  # y_0 <= 0 at x_0 = 0 only
    for step in ("attack", "branching", "splitting"):
        found = decide(identity, (2,), question, timeout=20, steps=[step])
        assert found.verdict == "sat"
        assert Fraction(found.witness.x[0]) == 0
    found = decide(identity, (2,), strict(question), timeout=0.5, steps=["attack", "bounds"])
    assert found.verdict == "unknown"


def test_a_tie_in_float32_only_is_none(case, prop):
    """y = 1 + x rounds to 1 in float32 at the least x > 0; in real numbers it is above."""
    linear = nn.Linear(2, 1)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 0.0]]))
        linear.bias.fill_(1.0)
    tiny = 2.0**-40
    question = prop(case([tiny, 0], [2 * tiny, 1], ([[1.0]], 1.0)))
    found = decide(nn.Sequential(linear).eval(), (2,), question, timeout=2)
    assert found.verdict == "unsat"


def test_a_tie_in_real_numbers_only_is_none(case, prop):
    """y = 1/3 + x rounds above the sum in float32; in real numbers it is the bound."""
    linear = nn.Linear(1, 1)
    with torch.no_grad():
        linear.weight.fill_(1.0)
        linear.bias.fill_(2.0**-24)
    # float32: 1 + 3 * 2^-24 lies half way between two numbers, real: it is exactly the bound
    x = 1.0 + 2.0**-23
    value = x + 2.0**-24
    net = nn.Sequential(linear).eval()
    rounded = float(net(torch.tensor([[x]]))[0])
    assert rounded > value
    question = prop(case([x], [x], ([[1.0]], value)))
    assert decide(net, (1,), question, timeout=0.5).verdict != "sat"


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([[1, 0], [0, 1]], "sat"),  # y_0 <= 0.5 and y_1 <= 0.5
        ([[1, 0], [-1, 0]], "sat"),  # 0.5 <= y_0 <= 0.5, with b below
        ([[1, 1], [-1, 0], [0, -1]], "unsat"),  # both >= 0.75, their sum <= 1
    ],
)
def test_a_conjunction_needs_all_of_its_rows(identity, case, prop, rows, verdict):
    b = {2: 0.5, 3: np.array([1, -0.75, -0.75])}[len(rows)]
    b = np.array([0.6, -0.4]) if rows[1] == [-1, 0] and len(rows) == 2 else b
    question = prop(case([0, 0], [1, 1], (rows, b)))
    found = decide(identity, (2,), question, timeout=20)
    assert found.verdict == verdict
    if verdict == "sat":
        assert is_true(identity, (2,), question, found.witness)


@pytest.mark.parametrize("last", [-0.5, 0.25])
@pytest.mark.parametrize("at_once", [1, 2, 3, 1024])
def test_conditions_in_parts_are_the_same_question(
    identity, case, prop, monkeypatch, last, at_once
):
    monkeypatch.setattr("maar.certification.properties.decide.ROWS", at_once)
    conditions = [([[1, 0]], -1), ([[1, 0], [0, 1]], -2), ([[0, 1]], -3), ([[0, 1]], last)]
    found = decide(identity, (2,), prop(case([0, 0], [1, 1], *conditions)), timeout=20)
    assert found.verdict == ("unsat" if last < 0 else "sat")


def test_memory_does_not_grow_with_the_square_of_the_conditions(identity, case, prop):
    conditions = [([[1, 0]], -1.0 - k) for k in range(50_000)]  # (20 GB at once)
    found = decide(identity, (2,), prop(case([0, 0], [1, 1], *conditions)), timeout=60)
    assert found.verdict == "unsat"


def test_a_disjunction_needs_one(identity, case, prop):
    never, always = ([[1, 0]], -1), ([[0, 1]], 0.5)
    box = [0, 0], [1, 1]
    assert decide(identity, (2,), prop(case(*box, never, never))).verdict == "unsat"
    assert decide(identity, (2,), prop(case(*box, never, always))).verdict == "sat"
    cases = case(*box, never), case([0, 0.75], [1, 1], always), case(*box, never)
    assert decide(identity, (2,), prop(*cases)).verdict == "unsat"
    assert decide(identity, (2,), prop(*cases, case(*box, always))).verdict == "sat"


@pytest.mark.parametrize("step", ["branching", "splitting"])
def test_what_bounds_cannot_see(nought, case, prop, step):
    question = prop(case([-1, -1], [1, 1], ([[1, 0], [1, 1]], -0.01)))
    found = decide(nought, (2,), question, timeout=200, steps=["bounds", step])
    assert (found.verdict, found.by) == ("unsat", step)


@pytest.mark.parametrize("step", ["bounds", "branching", "splitting"])
def test_one_proved_condition_proves_no_other(nought, case, prop, step):
    never, tie = ([[1, 0]], -9.0), ([[1, 0]], 0.0)
    for pair in ((never, tie), (tie, never)):
        question = prop(case([-1, -1], [1, 1], *pair))
        assert decide(nought, (2,), question, timeout=0.5, steps=[step]).verdict != "unsat"


def test_no_rows_and_no_cases(identity, case, prop):
    everything = prop(case([0, 0], [1, 1], (np.zeros((0, 2)), [])))
    found = decide(identity, (2,), everything)
    assert found.verdict == "sat"
    assert is_true(identity, (2,), everything, found.witness)
    assert decide(identity, (2,), Property(2, 2, ())).verdict == "unsat"


def test_a_box_without_float_numbers_inside(identity):
    """0.1 is no float: the point must be that decimal, not its neighbour."""
    tenth = Fraction("0.1")
    low, high = math.nextafter(0.1, 0), 0.1  # encloses 1/10, as the parser would
    edge = Case(
        np.array([low, low]),
        np.array([high, high]),
        (tenth, tenth),
        (tenth, tenth),
        (Condition(np.array([[1.0, 0.0]]), np.array([0.2]), np.array([0.2])),),
    )
    found = decide(identity, (2,), Property(2, 2, (edge,)))
    assert found.verdict == "sat"
    assert found.witness is not None
    assert found.witness.x == ("0.1", "0.1")


def test_a_runner_that_disagrees(identity, case, prop):
    question = prop(case([0, 0], [1, 1], ([[1, 0]], 0.5)))
    found = decide(identity, (2,), question, timeout=0.3, runner=lambda x: np.full((1, 2), 0.75))
    assert found.verdict in ("timeout", "unknown")
    assert found.witness is None


def test_time_is_up(nought, case, prop, strict):
    question = strict(prop(case([-1, -1], [1, 1], ([[1, 0]], 0.0))))  # a tie everywhere
    start = time.monotonic()
    found = decide(nought, (2,), question, timeout=0.5, steps=["splitting"])
    assert found.verdict == "timeout"
    assert "1 condition is open" in found.reason
    assert time.monotonic() - start < 5
    assert decide(nought, (2,), question, timeout=0).verdict == "timeout"


def test_all_of_the_time_is_used(nought, case, prop, strict):
    tie, easy = ([[1, 0]], 0.0), ([[1, 0]], -0.5)
    box = [-1, -1], [1, 1]
    question = strict(prop(case(*box, tie), *(case(*box, easy) for _ in range(3))))
    start = time.monotonic()
    assert decide(nought, (2,), question, timeout=1.5).verdict == "timeout"
    assert time.monotonic() - start >= 1.5


def test_the_vnncomp_format(identity, case, prop):
    question = prop(case([0.25, 0.25], [0.25, 0.25], ([[1, 0]], 0.5)))
    assert str(decide(identity, (2,), question).witness) == (
        "((X_0 0.25)\n(X_1 0.25)\n(Y_0 0.25)\n(Y_1 0.25))"
    )


def test_refused(identity, case, prop):
    question = prop(case([0, 0], [1, 1], ([[1, 0]], 0.5)))
    with pytest.raises(UsageError, match=r"2 inputs and 2 outputs, the network has 3 \(3\) and 2"):
        decide(nn.Sequential(nn.Linear(3, 2)), (3,), question)
    with pytest.raises(UsageError, match="not a list of outputs"):
        decide(nn.Sequential(nn.ReLU()), (1, 1, 2), question)
    with torch.no_grad():
        identity[0].weight[0, 0] = torch.nan
    with pytest.raises(RunError, match="NaN"):
        decide(identity, (2,), question)


# Against looking everywhere


def random_net(seed, kind):
    torch.manual_seed(seed)
    if kind == "residual":
        body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        layers = [nn.Linear(2, 4), nn.ReLU(), Residual(body), nn.ReLU(), nn.Linear(4, 3)]
        return nn.Sequential(*layers).eval(), (2,)
    if kind == "image":
        conv = nn.Conv2d(1, 3, 2, padding=1)
        layers = [Normalize([0.3], [0.5]), conv, nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)]
        return nn.Sequential(*layers).eval(), (1, 1, 2)
    layers = [nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)]
    return nn.Sequential(*layers).eval(), (2,)


def grid(case, steps):
    sides = [np.linspace(a, b, steps) for a, b in zip(case.lb, case.ub, strict=True)]
    return np.stack(np.meshgrid(*sides), -1).reshape(-1, 2)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_against_looking_everywhere(data):
    seed = data.draw(st.integers(0, 10_000))
    net, shape = random_net(seed, data.draw(st.sampled_from(["plain", "residual", "image"])))
    net.requires_grad_(False)
    rng = np.random.default_rng(seed)
    cases = []
    for _ in range(data.draw(st.integers(1, 2))):
        centre, radius = rng.uniform(-1, 1, 2), rng.uniform(0.05, 0.8, 2)
        lb, ub = centre - radius, centre + radius
        y = net(torch.from_numpy(centre).float().view(1, *shape))[0].double().numpy()
        conditions = []
        for _ in range(data.draw(st.integers(1, 2))):
            A = rng.choice([-1.0, 0.0, 1.0, 0.5], (data.draw(st.integers(1, 3)), 3))
            # near the centre's outputs, so that both verdicts come about
            b = A @ y + rng.uniform(-0.6, 0.1, len(A))
            conditions.append(Condition(A, b, b))
        exact = [tuple(map(Fraction, side.tolist())) for side in (lb, ub)]
        cases.append(Case(lb, ub, *exact, tuple(conditions)))
    prop = Property(2, 3, tuple(cases))
    found = decide(net, shape, prop, timeout=3)
    if found.verdict == "sat":
        assert is_true(net, shape, prop, found.witness)
        return
    exact_net = net.double()
    for case in prop.cases:
        points = torch.from_numpy(grid(case, 101)).view(-1, *shape)
        y = exact_net(points).numpy()
        for condition in case.conditions:
            deepest = (condition.b - y @ condition.A.T).min(1).max()
            # (a grid point this deep is no matter of rounding, and an attack would have found it)
            assert deepest < 1e-9 if found.verdict == "unsat" else deepest < 1e-2


def test_a_conjunction_that_no_row_refutes_alone(case, prop):
    """|x| <= 0.4 and |x| >= 0.5, with y_0 = |x|, y_1 = x: each row is met somewhere."""
    first, last = nn.Linear(1, 2, bias=False), nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        last.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
    net = nn.Sequential(first, nn.ReLU(), last).eval()
    rows = [[1.0, 0.0], [-1.0, 0.0]]
    for low, verdict in ((0.5, "unsat"), (0.3, "sat")):
        question = prop(case([-1], [1], (rows, [0.4, -low])))
        for step in ("branching", "splitting"):
            assert decide(net, (1,), question, timeout=20, steps=[step]).verdict == verdict


def test_many_boxes_at_once(identity, case, prop):
    boxes = [([i / 500, 0], [(i + 1) / 500, 1]) for i in range(500)]
    cases = [case(*box, ([[1, 0]], -0.5), ([[1, 1], [-1, 0]], [-0.5, 0.1])) for box in boxes]
    found = decide(identity, (2,), prop(*cases), timeout=60)
    assert (found.verdict, found.by) == ("unsat", "splitting")
    met = case([0.5, 0], [0.6, 1], ([[-1, 0]], -0.55))
    found = decide(identity, (2,), prop(*cases, met), timeout=60)
    assert found.verdict == "sat"


@pytest.mark.parametrize("step", [name for name in STEPS if "attack" not in name])
def test_no_step_proves_too_much(step):
    """The least value of y_0 is known; a proof of anything above it would be wrong."""
    for seed in range(12):
        net, shape = random_net(seed, "plain")
        net.requires_grad_(False)
        lb, ub = np.array([-0.4, -0.3]), np.array([0.5, 0.6])
        exact = [tuple(map(Fraction, side.tolist())) for side in (lb, ub)]
        A, zero = np.array([[1.0, 0.0, 0.0]]), np.zeros(1)
        box = Case(lb, ub, *exact, (Condition(A, zero, zero),))
        y = net.double()(torch.from_numpy(grid(box, 201)).view(-1, *shape))[:, 0]
        least = float(y.min())
        condition = Condition(A, np.array([least]), np.array([least]))
        question = Property(2, 3, (Case(lb, ub, *exact, (condition,)),))
        found = decide(net.float(), shape, question, timeout=0.5, steps=[step])
        assert found.verdict != "unsat"


def test_unknown_step(identity, case, prop):
    with pytest.raises(UsageError, match="no steps"):
        decide(identity, (2,), prop(case([0, 0], [1, 1], ([[1, 0]], 0.5))), steps=[])
    with pytest.raises(UsageError, match="unknown step 'bonds'; did you mean 'bounds'"):
        decide(identity, (2,), prop(case([0, 0], [1, 1], ([[1, 0]], 0.5))), steps=["bonds"])


def test_a_bound_without_time_leaves_nothing_behind(nought, case, prop, monkeypatch):
    """Every bound is late: the others go on, and the question stays open."""
    from maar.certification.properties import bounds
    from maar.core import clock

    def late(*args, **kwargs):
        raise clock.Late

    monkeypatch.setattr(bounds, "INTERVAL", late)
    question = prop(case([-1, -1], [1, 1], ([[1, 0], [1, 1]], -3.5)))
    found = decide(nought, (2,), question, timeout=60, steps=["bounds"])
    assert found.verdict == "unsat"
    monkeypatch.setattr(bounds, "reduce", late)
    monkeypatch.setattr(bounds, "CROWN", late)
    found = decide(nought, (2,), question, timeout=60, steps=["bounds"])
    assert found.verdict == "unknown"
    assert "had no time" in found.log[-1].text
