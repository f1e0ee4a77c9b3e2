"""What fuzzing against exact minima found, kept small."""

import itertools
from fractions import Fraction

import pytest
import torch
from torch import nn

from maar.certification import VERIFIERS, crown
from maar.certification.block import BLOCK
from maar.certification.cascade import Cascade
from maar.certification.network import Network
from maar.certification.query import Query
from maar.certification.verdict import Status
from maar.domains.relax import parallel_lines, upper_line

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


def least_margin(layer, x, y, k, eps):
    """Of a network that is one Linear, exactly: each pixel goes its own way."""
    eps, total = Fraction(eps), Fraction(layer.bias[y].item()) - Fraction(layer.bias[k].item())
    for a, b, v in zip(layer.weight[y].tolist(), layer.weight[k].tolist(), x.tolist(), strict=True):
        w, v = Fraction(a) - Fraction(b), Fraction(v)
        total += w * (max(Fraction(0), v - eps) if w > 0 else min(Fraction(1), v + eps))
    return total


@pytest.mark.parametrize("seed", range(3))
def test_every_image_of_a_block_gets_its_own_bounds(seed):
    """Images, labels and rows in disorder, some of them settled before the bounds are asked."""
    chance = torch.Generator().manual_seed(seed)
    layer = nn.Linear(6, 4)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(4, 6, generator=chance))
        layer.bias.copy_(torch.randn(4, generator=chance))
    network = Network(nn.Sequential(nn.Flatten(), layer), (1, 2, 3))
    places = torch.randperm(BLOCK, generator=chance)[: BLOCK - 5 * seed].tolist()
    x = torch.rand(len(places), 1, 2, 3, generator=chance)
    x[::3] = x[::3].round()
    y = network.net(x).argmax(1)
    y[::4] = torch.randint(0, 4, y[::4].shape, generator=chance)
    eps = (0.0, 0.05, 0.3)[seed]
    queries = [
        Query.of(network, image[None], int(label), eps, place + 5 * BLOCK)
        for image, label, place in zip(x, y, places, strict=True)
    ]
    found = Cascade.named(["misclassified", "interval"]).begin(queries)
    assert {Status.MISCLASSIFIED, Status.VERIFIED} <= {settled.status for settled in found}
    for query, settled in zip(queries, found, strict=True):
        wrong = int(network.net(query.x).argmax()) != query.y
        assert (settled.status is Status.MISCLASSIFIED) == wrong
        truth = {k: least_margin(layer, query.x.flatten(), query.y, k, eps) for k in query.targets}
        assert wrong or settled.lb.keys() == truth.keys()
        for k, lb in settled.lb.items():
            assert truth[k] - Fraction(1, 10**4) < Fraction(lb) <= truth[k]
        if settled.status is Status.VERIFIED:
            assert min(truth.values()) > 0


def test_what_alpha_crown_leaves_behind_is_of_the_classes_that_it_is_for():
    """Whatever classes were open when, and in whatever order."""
    chance = torch.Generator().manual_seed(1)
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in itertools.pairwise((4, 6, 6, 5)):
        layers += [nn.Linear(before, after), nn.ReLU()]
        with torch.no_grad():
            for value in layers[-2].parameters():
                value.copy_(torch.randn(value.shape, generator=chance))
    network = Network(nn.Sequential(*layers[:-1]), (1, 2, 2))
    x = torch.full((1, 1, 2, 2), 0.5)
    whole = Query.of(network, x, 2, 0.3)
    first = crown.crown(Query.of(network, x, 2, 0.3), torch.float64)
    rows = first.reduction
    assert rows is not None
    assert rows.network.columns
    crown.crown(whole, torch.float64)
    for some, fewer in (((4, 1, 3), (1, 4)), ((3, 1), (3,))):
        verdict = VERIFIERS["alpha_crown"]()(whole.narrowed(some))
        assert tuple(verdict.lb) == some
        left = crown.crown(whole.narrowed(fewer), torch.float64)
        assert left.reduction is not None
        assert left.reduction.network is not rows.network
        for n, k in enumerate(fewer):
            place = whole.targets.index(k)
            torch.testing.assert_close(left.lb[n], first.lb[place])
            for mine, true in zip(
                vars(left.reduction.rows).values(), vars(rows.rows).values(), strict=True
            ):
                torch.testing.assert_close(mine[n], true[place], rtol=1e-9, atol=1e-12)
            alone = VERIFIERS["bab"]()(whole.narrowed([k]))
            fresh = VERIFIERS["bab"]()(Query.of(network, x, 2, 0.3).narrowed([k]))
            assert alone.status is fresh.status
