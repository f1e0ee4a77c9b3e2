"""Projections: several groups in one walk, and a gradient that is autograd's, by shorter ways."""

import pytest
import torch
from torch import nn

from maar.domains.affine import conv_of
from maar.domains.bound import Corners
from maar.domains.cauchy import last_matrix, median
from maar.domains.cauchy.estimate import Cauchy
from maar.domains.cauchy.median import median_and_place, median_of
from maar.domains.cauchy.projections import fresh, medians


def start(key, shape, count=7, seed=0):
    chance = torch.Generator().manual_seed(seed)
    radius = torch.rand(*shape, generator=chance, dtype=torch.float64)
    return fresh(key, radius, count, whole=False, generator=chance)


def behind(trail, layer, like):
    if isinstance(layer, nn.Linear):
        return trail.mapped(lambda x: x @ layer.weight.T, like, layer.weight)
    conv = conv_of(layer, layer.in_channels)
    apply = lambda x: conv.forward(x.flatten(0, 1), conv.weight).unflatten(0, x.shape[:2])  # noqa: E731
    return trail.mapped(apply, like, conv)


LAYERS = {
    "linear": (nn.Linear(5, 6), (3, 5)),
    "conv": (nn.Conv2d(2, 4, 3, padding=1), (3, 2, 6, 5)),
    "strided": (nn.Conv2d(2, 4, (3, 2), stride=(2, 3), padding=(0, 2)), (3, 2, 7, 6)),
    "dilated": (nn.Conv2d(3, 2, 2, dilation=(2, 1), stride=2, padding=1), (2, 3, 8, 8)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("share", [None, 0.4])
@pytest.mark.parametrize("many", [0.0, 1.0], ids=["by projection", "by neuron"])
def test_the_short_gradient_is_that_of_autograd(name, share, many, monkeypatch):
    torch.manual_seed(1)
    layer, shape = LAYERS[name]
    layer = layer.double()
    like = layer(torch.zeros(shape, dtype=torch.float64))
    where = None if share is None else torch.rand(like.shape) < share
    upstream = torch.randn(like.shape, dtype=torch.float64) * (torch.rand(like.shape) < 0.7)
    monkeypatch.setattr(last_matrix, "NEURONS", 5)
    monkeypatch.setattr(last_matrix, "MANY", many)
    found = []
    for short in (True, False):
        trail = behind(start(0, shape), layer, like)
        if not short:
            trail.matrix = None  # then autograd has to find its own way
        norms = medians(trail, frozenset({0}), where)
        (gradient,) = torch.autograd.grad((norms * upstream).sum(), layer.weight)
        found.append((norms, gradient))
    assert found[0][0].grad_fn.name() != found[1][0].grad_fn.name()
    torch.testing.assert_close(found[0], found[1])
    if where is not None:
        assert not bool(found[0][0][~where].any())


def test_a_prefix_that_is_trained_keeps_its_gradient():
    """The short ways know the last matrix only, so it must not be taken here."""
    torch.manual_seed(0)
    first, second = nn.Linear(5, 6).double(), nn.Linear(6, 4).double()
    trail = behind(start(0, (2, 5)), first, torch.zeros(2, 6))
    trail = behind(trail, second, torch.zeros(2, 4))
    medians(trail, frozenset({0}), None).sum().backward()
    assert bool(first.weight.grad.any())
    assert bool(second.weight.grad.any())


def test_groups_are_added_on_the_way():
    """One walk for two groups: by the definition, with matrices."""
    torch.manual_seed(0)
    first, second = nn.Linear(5, 6).double(), nn.Linear(6, 4).double()
    old, new = start(-1, (2, 5), seed=1), start(0, (2, 6), seed=2)
    joined = behind(old, first, torch.zeros(2, 6)).joined(new)
    trail = behind(joined, second, torch.zeros(2, 4))
    every = slice(0, 7)
    R_old = old.part(frozenset({-1}), every) @ first.weight.T @ second.weight.T
    R_new = new.part(frozenset({0}), every) @ second.weight.T
    for keys, expected in [({-1}, R_old), ({0}, R_new), ({-1, 0}, R_old + R_new)]:
        torch.testing.assert_close(trail.part(frozenset(keys), every), expected)
        found = medians(trail, frozenset(keys), None)
        torch.testing.assert_close(found, expected.abs().median(0).values)


def test_only_unstable_neurons_of_a_frozen_prefix_move_the_weights():
    """The whole bound: its gradient with the prefix frozen is the one with the prefix trained."""
    torch.manual_seed(2)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3, 2, 1), nn.ReLU(), nn.Conv2d(3, 4, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(4, 5, 2, 2),
    ).double()  # fmt: skip
    x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    gradients = []
    for frozen in (True, False):
        for layer in list(net)[:4]:
            layer.requires_grad_(not frozen)
        net.zero_grad()
        chance = torch.Generator().manual_seed(5)
        bound = Cauchy(generator=chance, per_group=False, two_matrices=False, skip_stable=True)
        found = bound(net, Corners(x - 0.5, x + 0.5))
        ((-found.lb).clamp_min(0) * found.ub.clamp_min(0)).sum().backward()
        gradients.append(net[4].weight.grad.clone())
    assert bool(gradients[0].any())
    torch.testing.assert_close(gradients[0], gradients[1])


def test_medians_by_blocks_are_those_of_torch(monkeypatch):
    monkeypatch.setattr(median, "BLOCK", 7)
    samples = torch.randn(50, 31)
    size, place, sign = median_and_place(samples)
    exact = samples.abs().median(0).values
    assert torch.equal(size, exact)
    assert torch.equal(median_of(samples), exact)
    chosen = samples.gather(0, place.long()[None])[0]
    assert torch.equal(chosen.abs(), exact)
    assert torch.equal(sign, chosen.sgn())
    assert median_of(samples[:, :0]).shape == (0,)


def test_bfloat16_projections_estimate_the_same():
    """The same random numbers, rounded: far closer than the estimates are to the truth."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, 1, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(4, 6, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 3 * 3, 20),
    )  # fmt: skip
    for layer in list(net)[:-1]:
        layer.requires_grad_(False)
    x = torch.rand(4, 1, 12, 12)
    found, gradients = [], []
    for dtype in (None, torch.bfloat16):
        net.zero_grad()
        chance = torch.Generator().manual_seed(5)
        bound = Cauchy(generator=chance, per_group=False, two_matrices=False, dtype=dtype)
        found.append(bound(net, Corners(x - 0.1, x + 0.1)))
        (found[-1].ub - found[-1].lb).sum().backward()
        gradients.append(net[-1].weight.grad.clone())
        assert found[-1].lb.dtype == torch.float32
    exact, rounded = (one.ub - one.lb for one in found)
    assert not torch.equal(exact, rounded)
    assert ((rounded - exact).abs() / exact).mean() < 0.02
    # Where the median is another of two neighbours, the gradient is that one's.
    likeness = torch.cosine_similarity(gradients[0].flatten(), gradients[1].flatten(), dim=0)
    assert likeness > 0.5
