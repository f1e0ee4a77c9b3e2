"""What all bounds share: the specification, the registry, errors that name what is wrong."""

import pytest
import torch
from torch import nn

from maar.core.errors import UsageError
from maar.domains import BOUNDS
from maar.domains.alpha_crown import AlphaCrown
from maar.domains.bound import Corners, margins
from maar.domains.cauchy.estimate import Cauchy
from maar.domains.crown import Crown
from maar.domains.interval import Interval
from maar.domains.zonotope import Zonotope
from maar.regions import Ball

EVERY = [Interval(), Zonotope(), Cauchy(), Crown(), Crown("interval"), AlphaCrown(steps=1)]
every_bound = pytest.mark.parametrize("bound", EVERY, ids=repr)


def test_margins():
    C = margins(torch.tensor([1, 0]), 3)
    assert C.tolist() == [[[-1, 1, 0], [0, 1, -1]], [[1, -1, 0], [1, 0, -1]]]


def test_the_registry_has_every_bound():
    assert [BOUNDS[name].name for name in BOUNDS] == list(BOUNDS)
    assert {name for name in BOUNDS if not BOUNDS[name].sound} == {"cauchy"}
    with pytest.raises(UsageError, match=r"unknown bound 'crwn'.*'crown'"):
        BOUNDS["crwn"]


@every_bound
def test_every_region_that_is_a_box_will_do(bound):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
    ball = Ball(torch.rand(2, 2, 2, 2), torch.tensor([0.1, 0.0]))
    found = bound(net, ball)
    assert found.lb.shape == found.ub.shape == (2, 3)
    assert [pair[0].shape for pair in found.pre] == [(2, 4)]
    assert bool((found.lb <= net(ball.x) + 1e-5).all())
    assert bool((net(ball.x) <= found.ub + 1e-5).all())


def box(*shape):
    return Corners(torch.zeros(1, *shape), torch.ones(1, *shape))


@every_bound
def test_an_unsupported_layer(bound):
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2))
    expected = r"layer 2 is a GELU.*Conv2d, Linear, ReLU, Flatten, BatchNorm1d"
    with pytest.raises(UsageError, match=expected):
        bound(net, box(1, 2, 2))
    nested = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(4, 4), nn.Softshrink()))
    with pytest.raises(UsageError, match=r"layer 1\.1 is a Softshrink"):
        bound(nested, box(1, 2, 2))


@every_bound
def test_a_subclass_may_compute_anything(bound):
    class Odd(nn.Linear):
        def forward(self, x):
            return super().forward(x) ** 3

    class Twice(nn.Sequential):
        def forward(self, x):
            return 2 * super().forward(x)

    with pytest.raises(UsageError, match="layer 0 is a Odd"):
        bound(nn.Sequential(Odd(4, 2)), box(4))
    with pytest.raises(UsageError, match="layer 1 is a Twice"):
        bound(nn.Sequential(nn.Linear(4, 2), Twice(nn.ReLU())), box(4))


@every_bound
def test_a_box_of_the_wrong_shape(bound):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
    with pytest.raises(UsageError, match=r"layer 0 \(Conv2d\).*\(1, 4, 4\)"):
        bound(net, box(1, 4, 4))
    with pytest.raises(UsageError, match=r"layer 2 \(Linear\).*\(64,\)"):
        bound(net, box(3, 6, 6))


@every_bound
def test_a_linear_layer_on_an_image(bound):
    """torch applies it to the last axis, and so do the bounds that can."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Flatten(), nn.Linear(4, 2))
    if bound.name == "cauchy":
        with pytest.raises(UsageError, match="layer 0 is a Linear, for which cauchy has no rule"):
            bound(net, box(1, 2, 2))
        return
    with torch.no_grad():
        found, out = bound(net, box(1, 2, 2)), net(torch.rand(1, 1, 2, 2))
    assert bool(((found.lb <= out) & (out <= found.ub)).all())


@every_bound
@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.MaxPool2d(2, return_indices=True), "return_indices"),
        (nn.LeakyReLU(inplace=True), "inplace"),
        (nn.BatchNorm2d(1, track_running_stats=False), "running statistics"),
        (nn.Flatten(2), "Flatten"),
    ],
    ids=lambda value: str(value).split("(")[0],
)
def test_options_without_a_rule(bound, layer, message):
    with pytest.raises(UsageError, match=rf"layer 0 .*{message}"):
        bound(nn.Sequential(layer, nn.Flatten()), box(1, 4, 4))


@every_bound
@pytest.mark.parametrize("shape", [(1, 2, 4), (2, 2, 3), (2, 3)])
def test_a_specification_of_the_wrong_shape(bound, shape):
    """C is [images, rows, classes]: here 1 image and 3 classes."""
    net = nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(UsageError, match=r"C has shape.*\(1, rows, 3\)"):
        bound(net, box(4), torch.zeros(shape))


@every_bound
def test_what_is_known_of_the_wrong_number_of_relus(bound):
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU())
    pair = torch.zeros(1, 3), torch.ones(1, 3)
    with pytest.raises(UsageError, match=r"known has 1 .*2 ReLUs"):
        bound(net, box(4), known=[pair])
