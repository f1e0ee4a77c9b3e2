"""The shipped recipes: complete, comparable, and the paper's where they say so."""

import dataclasses

import pytest

from maar.config import load, recipes
from maar.methods.layerwise import Layerwise
from maar.methods.maar import MAAR
from maar.networks import make

SETTINGS = ("mnist-0.1", "cifar10-2_255", "cifar10-8_255")
METHODS = ("maar", "mat", "colt")
PROFILES = ("paper", "cpu")
GROUPS = [f"{setting}-{{}}-{profile}" for setting in SETTINGS for profile in PROFILES]


def layerwise(config) -> Layerwise:
    method = config.method.base if isinstance(config.method, MAAR) else config.method
    assert isinstance(method, Layerwise)
    return method


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_loads_and_says_what_it_is(name):
    config = load(name)
    shape = (1, 28, 28) if "mnist" in config.data else (3, 32, 32)
    net = make(config.network, shape, 10, [0.5] * shape[0], [0.5] * shape[0])
    assert config.method.stages(net, config.eps, config.train)


@pytest.mark.parametrize("group", GROUPS)
def test_the_methods_of_a_setting_differ_in_the_method_alone(group):
    configs = [load(group.format(method)) for method in METHODS]
    first, *others = configs
    assert [config.method.name for config in configs] == list(METHODS)
    for other in others:
        assert dataclasses.replace(other, method=first.method) == first
        for field in dataclasses.fields(Layerwise):
            knob = field.name
            assert getattr(layerwise(other), knob) == getattr(layerwise(first), knob), knob


def test_the_papers_own_numbers():
    mnist, small, large = (load(f"{setting}-maar-paper") for setting in SETTINGS)
    assert all(config.method.lam == 6 for config in (mnist, small, large))
    assert (mnist.train.optimizer, mnist.train.lr, mnist.train.epochs) == ("adam", 1e-4, 300)
    assert (mnist.method.base.attack.steps, mnist.method.base.attack.step_size) == (40, 0.035)
    for config in (small, large):
        assert (config.train.optimizer, config.train.lr, config.train.epochs) == ("sgd", 0.03, 200)
        assert (config.method.base.attack.steps, config.method.base.attack.step_size) == (8, 0.25)
        assert config.train.lr_decay_from == config.method.base.mix == 60
    assert [float(c.eps) for c in (mnist, small, large)] == [0.1, 2 / 255, 8 / 255]
