"""What every method must do; a new one is one row in the registry."""

import dataclasses

import pytest
import torch

from maar.core.eps import Eps
from maar.methods import METHODS
from maar.methods.base import Batch, Stage
from maar.methods.layerwise import Layerwise
from maar.methods.schedules import Constant
from maar.networks import make

NAMES = list(METHODS)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    net = make("mlp", (1, 6, 6), 3, [0.5], [0.5], seed=0)
    return Batch(
        net=net,
        x=torch.rand(8, 1, 6, 6, generator=generator),
        y=torch.randint(3, (8,), generator=generator),
        eps=0.1,
        stage=Stage("input", 1, Constant(0.1)),
        generator=torch.Generator().manual_seed(1),
    )


@pytest.mark.parametrize("name", NAMES)
def test_it_describes_itself(name):
    cls = METHODS[name]
    assert cls.name == name
    assert cls.__module__ == f"maar.methods.{name}"
    assert cls.paper
    assert cls.idea
    assert 1950 < cls.year < 2100
    assert cls.__doc__
    assert dataclasses.is_dataclass(cls)
    assert hash(cls()) == hash(cls())  # frozen, and so are its groups


@pytest.mark.parametrize("name", NAMES)
def test_its_loss_is_named_scalars_that_train_the_weights(name, batch):
    terms = METHODS[name]().loss(batch)
    assert terms
    assert all(term.shape == () and term.isfinite() for term in terms.values())
    sum(terms.values()).backward()
    assert all(p.grad is not None and p.grad.any() for p in batch.net.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_its_stages_last_as_configured_and_reach_eps(name, batch):
    stages = METHODS[name]().stages(batch.net, Eps("0.1"), 7)
    assert stages
    assert all(stage.epochs == 7 for stage in stages)
    assert stages[0].frozen == 0
    # (how much more the stages of the layerwise ones have: tests/methods/test_layerwise.py)
    factor = {"standard": 0.0, **dict.fromkeys(("maar", "mat", "colt"), Layerwise.eps_factor)}
    assert stages[-1].eps(7.0) == pytest.approx(0.1 * factor.get(name, 1.0))
    assert all(stage.eps(7.0) >= stages[-1].eps(7.0) for stage in stages)


@pytest.mark.parametrize("name", NAMES)
def test_it_judges_each_image(name, batch):
    method = METHODS[name]()
    batch.net.eval()
    judged = method.judge(batch)
    assert method.score in judged
    assert torch.equal(judged["accuracy"], batch.net(batch.x).argmax(1) == batch.y)
    assert all(good.shape == (8,) and good.dtype == torch.bool for good in judged.values())


@pytest.mark.parametrize("name", NAMES)
def test_its_only_chance_is_the_batchs_generator(name, batch):
    method = METHODS[name]()

    def losses():
        batch.generator.manual_seed(5)
        return {key: float(term.detach()) for key, term in method.loss(batch).items()}

    torch.manual_seed(1)
    first = losses()
    torch.manual_seed(2)
    assert losses() == first
