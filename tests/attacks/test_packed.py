"""Weights laid out for many products: the same products, and the same attack."""

import pytest
import torch

from maar.attacks import PGD, layers, packed
from maar.attacks.packed import product_with
from maar.networks import make
from maar.regions import Ball


@pytest.fixture
def any_size(monkeypatch):
    """As if every matrix were large."""
    if not packed._is_there():
        pytest.skip("this build of PyTorch has no oneDNN")
    monkeypatch.setattr(packed, "LARGE", 1)


@pytest.mark.parametrize("rows", [1, 7, 100])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_it_is_the_product(rows, bias, transposed, any_size):
    torch.manual_seed(0)
    weight = torch.randn(33, 65).T if transposed else torch.randn(65, 33)
    shift = torch.randn(65) if bias else None
    product = product_with(weight, shift, rows)
    assert product is not None
    for _ in range(2):
        x = torch.randn(rows, 33)
        torch.testing.assert_close(product(x), torch.nn.functional.linear(x, weight, shift))


def test_what_it_is_not_for(any_size, monkeypatch):
    assert product_with(torch.randn(3, 4, dtype=torch.float64), None, 2) is None
    assert product_with(torch.randn(3, 4, requires_grad=True), None, 2) is None
    monkeypatch.setattr(packed, "LARGE", 13)
    assert product_with(torch.randn(3, 4), None, 2) is None
    monkeypatch.setattr(packed, "_is_there", lambda: False)
    assert product_with(torch.randn(30, 40), None, 2) is None


@pytest.mark.parametrize("images", [1, 4])
@pytest.mark.parametrize("steps", [packed.MANY - 1, packed.MANY, 8])
def test_an_attack_goes_the_same_way(images, steps, any_size, monkeypatch):
    net = make("convmed_2_2_100", (1, 28, 28), 10, [0.1], [0.3], seed=0)
    net.requires_grad_(False)
    chance = torch.Generator().manual_seed(0)
    x, y = torch.rand(images, 1, 28, 28, generator=chance), torch.arange(images)
    used = []

    def counted(*given):
        used.append(product_with(*given))
        return used[-1]

    monkeypatch.setattr(layers, "product_with", counted)
    attack = PGD(steps=steps, step_size=0.1)
    (fast,) = attack(net, Ball(x, 0.1), y, generator=torch.Generator().manual_seed(1))
    assert bool(used) == (steps >= packed.MANY)
    assert all(used)
    monkeypatch.setattr(layers, "product_with", lambda *given: None)
    (plain,) = attack(net, Ball(x, 0.1), y, generator=torch.Generator().manual_seed(1))
    # (a gradient near 0 may round to the other side)
    assert (fast != plain).float().mean() < 0.01
