import math
import time
from dataclasses import replace

import pytest
import torch

from maar.certification import VERIFIERS
from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.verdict import Status
from maar.certification.verifiers.bab import BranchAndBound


def test_the_rows_are_those_of_the_open_classes(trained):
    network = Network(trained, (1, 28, 28))
    query = Query.of(network, torch.rand(1, 1, 28, 28), 3, 0.1)
    assert query.targets == (0, 1, 2, 4, 5, 6, 7, 8, 9)
    z = torch.rand(10)
    assert torch.equal(query.margins()[0] @ z, z[3] - z[list(query.targets)])
    some = query.narrowed([9, 0])
    assert torch.equal(some.margins()[0] @ z, z[3] - z[[9, 0]])
    assert some.memory is query.memory


def test_the_ball_of_each_precision_holds_the_real_one(ask):
    x, eps = torch.tensor([0.75, 0.25]).double(), 0.1
    for dtype, slack in ((torch.float32, 1e-6), (torch.float64, 1e-15)):
        ball = ask(eps).ball(dtype)
        assert ball.lb.dtype == dtype
        below, above = x - eps - ball.lb.double(), ball.ub.double() - x - eps
        assert min(below.min(), above.min()) >= 0
        assert max(below.max(), above.max()) < slack


def test_time_left(ask):
    query = ask(0.1)
    assert query.left() == math.inf
    assert query.left(5.0) == 5.0
    soon = replace(query, deadline=time.monotonic() + 10)
    assert 9 < soon.left() <= 10
    assert soon.left(3.0) == 3.0
    assert replace(query, deadline=time.monotonic() - 1).left(3.0) == 0.0
    assert soon.narrowed([1]).deadline == soon.deadline


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_deadline_that_is_over_ends_a_verifier_and_proves_nothing_new(name, trained, mnist_mini):
    """It may still give what it has, but never a verdict other than with all the time."""
    x, y = mnist_mini.images("test", [0]), int(mnist_mini.labels("test", [0]))
    query = Query.of(Network(trained, (1, 28, 28)), x, y, 0.06)
    late = replace(query, deadline=time.monotonic(), memory={})
    hurried, patient = VERIFIERS[name]()(late), VERIFIERS[name]()(query)
    assert hurried.status in (Status.UNKNOWN, patient.status)


def test_limits_of_time_are_no_part_of_the_key():
    assert repr(BranchAndBound(seconds=1)) == repr(BranchAndBound())
