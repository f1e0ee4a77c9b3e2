"""What fuzzing against exact minima found, kept small."""

import pytest
import torch
from torch import nn

from maar.bounds.relax import parallel_lines, upper_line
from maar.certify import VERIFIERS
from maar.certify.cascade import Cascade
from maar.certify.network import Network
from maar.certify.query import Query
from maar.certify.verdict import Status

NAN = float("nan")


def linear(weight, bias):
    layer = nn.Linear(len(weight[0]), len(weight))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))
    return layer


@pytest.mark.parametrize(("lb", "ub"), [(NAN, 1.0), (-1.0, NAN), (NAN, NAN), (NAN, 0.0)])
@pytest.mark.parametrize("slope", [None, 0.5])
def test_a_relu_with_a_bound_that_is_no_number_is_not_zero(lb, ub, slope):
    lb, ub = torch.tensor([lb]), torch.tensor([ub])
    if slope is None:
        _, intercept = upper_line(lb, ub)
    else:
        _, intercept = parallel_lines(lb, ub, torch.tensor([slope]))
    assert intercept.isnan().all() or bool((ub <= 0).all())


def always_zero_above_a_dead_neuron():
    """The third layer's first neuron is exactly 0; its computed range is subnormal.

    alpha-CROWN's gradient of a line on that range was NaN, so were slopes and bounds of the
    neurons below, and a ReLU with a NaN for a bound passed for zero: verified with 0.12, while
    the least margin is -0.13.
    """
    return nn.Sequential(
        nn.Flatten(),
        linear([[1.0, -1.0], [1.0, 1.0]], [-0.1, -0.9]),
        nn.ReLU(),
        linear([[1.0, -1.0], [-1.0, -1.0]], [0.05, -3.0]),
        nn.ReLU(),
        linear([[0.0, 1.0], [1.0, 0.0]], [0.0, 0.0]),
        nn.ReLU(),
        linear([[0.0, 0.0], [1.0, 1.0]], [0.12, 0.0]),
    )


@pytest.mark.parametrize("name", VERIFIERS)
def test_subnormal_ranges_prove_nothing(name):
    network = Network(always_zero_above_a_dead_neuron(), (1, 1, 2))
    query = Query.of(network, torch.tensor([[[[0.5, 0.5]]]]), 0, 0.2)
    settled = Cascade.named([name]).settle(query)
    assert settled.status in (Status.UNKNOWN, Status.FALSIFIED)
    assert all(lb <= -0.13 for lb in settled.lb.values())
