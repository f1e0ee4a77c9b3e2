"""The shipped recipes: complete, comparable, and the paper's where they say so."""

import dataclasses

import pytest
import torch
from torch import nn

from maar.config import load, recipes
from maar.methods.base import Batch
from maar.methods.bounded import Bounded
from maar.methods.layerwise import Layerwise
from maar.methods.maar import MAAR
from maar.networks import make
from maar.networks.convnet import convnet

SETTINGS = ("mnist-0.1", "cifar10-2_255", "cifar10-8_255")
METHODS = ("maar", "mat", "colt")
IBP_FAMILY = (
    "ibp", "crown_ibp", "sabr", "taps", "staps", "mtl_ibp", "cc_ibp", "exp_ibp", "trades", "mart",
)  # fmt: skip
PROFILES = ("paper", "cpu")
GROUPS = [f"{setting}-{{}}-{profile}" for setting in SETTINGS for profile in PROFILES]


def layerwise(config) -> Layerwise:
    method = config.method.base if isinstance(config.method, MAAR) else config.method
    assert isinstance(method, Layerwise)
    return method


def image_shape(config) -> tuple[int, int, int]:
    return (1, 28, 28) if "mnist" in config.data else (3, 32, 32)


def network(config) -> nn.Sequential:
    """The recipe's own; of CNN7, whose size is of no matter here, a narrow one."""
    shape = image_shape(config)
    mean = std = [0.5] * shape[0]
    if config.network != "cnn7":
        return make(config.network, shape, 10, mean, std)
    convs = [(4, 3, 1, 1), (4, 3, 1, 1), (4, 3, 2, 1), (4, 3, 1, 1), (4, 3, 1, 1)]
    return convnet(shape, 10, mean, std, convs=convs, hidden=[16], batch_norm=True)


# Half way up the ramp, where Shi's terms are there, and at the end, where TAPS attacks.
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("name", recipes())
def test_every_recipe_loads_and_takes_a_step(name, at_end):
    config, generator = load(name), torch.Generator().manual_seed(0)
    net = network(config)
    config.method.initialise(net, generator)
    stage = config.method.stages(net, config.eps, config.train)[0]
    half = getattr(config.method, "warmup", 0.0) + (getattr(config.method, "ramp", 1.0) or 1.0) / 2
    t = float(stage.epochs) if at_end else half
    batch = Batch(
        net=net.train(),
        x=torch.rand(2, *image_shape(config), generator=generator),
        y=torch.tensor([3, 7]),
        eps=stage.eps(t),
        stage=stage,
        generator=generator,
        at={name: schedule(t) for name, schedule in stage.schedules.items()},
    )
    total = torch.stack(list(config.method.loss(batch).values())).sum()
    total.backward()
    assert total.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_ibp_family_is_compared_on_equal_terms(setting):
    configs = [load(f"{setting}-{method}-paper") for method in IBP_FAMILY]
    first, *others = configs
    assert [config.method.name for config in configs] == list(IBP_FAMILY)
    assert first.network == "cnn7"
    for other in others:
        assert dataclasses.replace(other, method=first.method) == first
        if isinstance(other.method, Bounded):
            assert (other.method.ramp, other.method.init) == (first.method.ramp, "shi")


def test_the_published_settings_of_the_ibp_family():
    def knobs(method: str, knob: str) -> list[float]:
        return [getattr(load(f"{s}-{method}-paper").method, knob) for s in SETTINGS]

    assert knobs("ibp", "eps_factor") == [2, 1, 1]
    assert knobs("ibp", "ramp") == [20, 80, 80]
    assert knobs("sabr", "lam") == [0.4, 0.1, 0.7]
    assert knobs("mtl_ibp", "alpha") == [0.01, 0.004, 0.5]
    assert knobs("cc_ibp", "alpha") == [0.1, 0.01, 0.5]
    train = [load(f"{s}-ibp-paper").train for s in SETTINGS]
    assert [t.epochs for t in train] == [70, 160, 260]
    assert [t.lr_decay_epochs for t in train] == [(50, 60), (120, 140), (180, 220)]
    assert {(t.lr, t.lr_decay, t.clip) for t in train} == {(5e-4, 0.2, 10)}


@pytest.mark.parametrize("method", IBP_FAMILY)
def test_the_cpu_profile_is_validated_and_on_the_small_network(method):
    config = load(f"mnist-0.1-{method}-cpu")
    assert config.method.name == method
    network = "convmed_2_2_100_bn" if isinstance(config.method, Bounded) else "convmed_2_2_100"
    assert (config.network, config.valid) == (network, 5000)


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
